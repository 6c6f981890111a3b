runbook "sample" {
  title = "Sample rack"
}

owner "ops" {
  contact = "ops@example.com"
}

fleet "pod" {
  hosts  = "gpu[01-03]"
  layout = [
    { node = "gpu01", gpu = "A1" },
    { node = "gpu02", gpu = "A1" },
    { node = "gpu03", gpu = "A2" },
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
  hazard   = "full_power"

  establishes = {
    "Each node is fast enough." = [threshold.gflops]
  }
  does_not_establish = ["Anything between nodes."]

  check "gpu_burn" {}

  threshold "gflops" {
    min   = 440
    unit  = "GFLOP/s"
    basis = "Contract, annex B"
  }
}
