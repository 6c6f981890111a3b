runbook "sample" {
  title = "Sample rack"
}

owner "ops" {
  contact = "ops@example.com"
}

fleet "pod" {
  hosts = "gpu[01-08]"

  expect {
    gpu_model = "H100"
  }

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
    "Each node is fast enough." = [threshold.busbw]
  }
  does_not_establish = ["Anything between nodes."]

  check "nccl_allreduce" {
    sizes = ["1GiB", "16GiB"]
  }

  threshold "busbw" {
    min   = 440
    unit  = "GB/s"
    basis = "Contract, annex B"
  }
}

test "parts" {
  phase    = phase.node
  nodes    = fleet.pod
  owner    = owner.ops
  duration = "1m"

  establishes = {
    "Each node has the parts." = [threshold.mismatches]
  }
  does_not_establish = ["That they perform."]

  check "inventory" {}

  threshold "mismatches" {
    max   = 1
    unit  = "1"
    basis = "Purchase order"
  }
}

nodeset "some" {
  hosts = "gpu[01-05,07]"
}
