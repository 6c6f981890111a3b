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
    "Each node is fast enough." = [threshold.outage]
  }
  does_not_establish = ["Anything between nodes."]

  check "failover" {
    probe {}

    client "one" {
      argv = ["uname", null]
    }
  }

  threshold "outage" {
    max   = 30
    unit  = "s"
    basis = "Contract, annex B"
  }
}
