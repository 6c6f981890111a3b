runbook "sample" {
  title = "Sample rack"
}

owner "ops" {
  contact = "ops@example.com"
}

fleet "pod" {
  hosts = "gpu[01-08]"

  executor "ssh" {
    user = "acceptance"
  }
}

phase "node" {}

test "bandwidth" {
  phase    = phase.node
  nodes    = fleet.pod
  owner    = owner.ops
  duration = "10m"

  establishes = {
    "Each node is fast enough." = [threshold.nccl_version]
  }
  does_not_establish = ["Anything between nodes."]

  check "nccl_allreduce" {
    sizes = ["1GiB", "16GiB"]
  }

  threshold "nccl_version" {
    stat  = "distinct"
    min   = 9
    per   = "test"
    unit  = "1"
    basis = "Contract, annex B"
  }
}
