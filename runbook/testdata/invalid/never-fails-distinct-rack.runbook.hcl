runbook "sample" {
  title = "Sample rack"
}

owner "ops" {
  contact = "ops@example.com"
}

fleet "pod" {
  hosts  = "gpu[01-04]"
  layout = [
    { node = "gpu01", rack = "A1" },
    { node = "gpu02", rack = "A1" },
    { node = "gpu03", rack = "A2" },
    { node = "gpu04", rack = "A2" },
  ]

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
    max   = 2
    per   = "rack"
    unit  = "1"
    basis = "Contract, annex B"
  }
}
