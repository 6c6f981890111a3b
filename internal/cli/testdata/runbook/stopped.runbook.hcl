runbook "stopped" {
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

variable "lock" {
  type        = string
  description = "Pattern of the lock file of the run, which holds the runner's process id."
  default     = ""
}

variable "signal" {
  type        = string
  description = "What the first tool sends to its runner, until the runner ends it."
  default     = "INT"
}

variable "until" {
  type        = string
  description = "A command: the first tool signals for as long as it fails."
  default     = "false"
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

phase "later" {
  depends_on = [phase.node]
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
    argv = ["sh", "-c", <<-EOT
      kill -${var.signal} $(cat ${var.lock})
      while ! ${var.until}; do sleep 0.1; kill -${var.signal} $(cat ${var.lock}); done
      printf 'rate 42.5\ndone\n'
    EOT
    ]
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

test "after" {
  phase    = phase.later
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
  require = [phase.node, phase.later]
  waivers = 0
}
