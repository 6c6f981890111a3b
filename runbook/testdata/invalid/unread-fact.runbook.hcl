runbook "sample" {
  title = "Sample rack"
}

owner "ops" {
  contact = "ops@example.com"
}

fleet "pod" {
  hosts = "gpu[01-08]"

  expect {
    gpus = 8
    hcas = "mlx5_0"
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
