runbook "small" {
  title   = "A small acceptance"
  version = "1.0.0"
}

variable "floor" {
  type        = number
  description = "The least rate, in MB/s."
  default     = 40
  contract    = 40
}

variable "proof" {
  type        = string
  description = "The closing line of the tool."
  default     = "done"
}

party "customer" {
  name = "Customer"
}

owner "ops" {
  party   = party.customer
  contact = "ops@example.com"
}

fleet "bench" {
  hosts = "n01"

  executor "local" {
  }
}

phase "node" {
  gate {
    require = "all"
    on_fail = "stop"
  }
}

test "rate" {
  phase    = phase.node
  nodes    = fleet.bench
  owner    = owner.ops
  duration = "5s"

  establishes = {
    "The tool is fast enough." = [threshold.rate]
  }
  does_not_establish = ["Anything else."]

  check "command" {
    argv  = ["printf", "rate 42.5\ndone\n"]
    proof = "^${var.proof}$"

    metric "rate" {
      unit  = "MB/s"
      regex = "^rate ([0-9.]+)$"
    }
  }

  threshold "rate" {
    min   = var.floor
    unit  = "MB/s"
    basis = "Order 1"
  }
}

release "final" {
  nodes   = fleet.bench
  require = [phase.node]
  waivers = 0
}
