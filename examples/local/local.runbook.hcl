# Two names for this machine, no SSH, about three seconds.

runbook "local" {
  title            = "This machine"
  version          = "1.0.0"
  required_version = ">= 0.1.0, < 2.0.0"
}

variable "machine" {
  type        = string
  description = "What the names of the two nodes begin with."
  default     = "machine"
}

variable "scratch" {
  type        = string
  description = "Folder in which the fault leaves its mark."
}

owner "site" {
  contact = "site@example.com"
}

fleet "machine" {
  hosts = "${var.machine}-[1-2]"

  executor "local" {
    shared_machine = true
  }
}

nodeset "victim" {
  hosts = "${var.machine}-2"
}

phase "inventory" {
  gate {
    require = "all"
    on_fail = "stop"
  }
}

phase "work" {
  depends_on = [phase.inventory]
}

test "parts" {
  phase    = phase.inventory
  nodes    = fleet.machine
  owner    = owner.site
  duration = "30s"

  establishes = {
    "Both names are one kernel." = [threshold.kernel]
  }
  does_not_establish = ["That it performs."]

  check "inventory" {}

  threshold "kernel" {
    stat  = "distinct"
    per   = "test"
    max   = 1
    unit  = "1"
    basis = "One machine"
  }
}

test "disturbed" {
  phase    = phase.work
  nodes    = nodeset.victim
  owner    = owner.site
  duration = "10s"
  hazard   = "leaves_a_mark"

  establishes = {
    "The processor goes on computing right while something is broken beside it." = [threshold.failures, threshold.elapsed]
  }
  does_not_establish = ["Anything about what was broken."]

  check "command" {
    argv  = ["stress-ng", "--cpu", "1", "--cpu-method", "matrixprod", "--verify", "--timeout", "1s", "--stdout"]
    proof = "successful run completed"

    metric "failures" {
      count = " fail: "
      unit  = "1"
    }

    metric "elapsed" {
      regex = "completed in ([0-9.]+)s"
      unit  = "s"
    }
  }

  fault "command" {
    nodes  = nodeset.victim
    after  = "300ms"
    for    = "500ms"
    inject = ["touch", "${var.scratch}/broken"]
    undo   = ["rm", "-f", "${var.scratch}/broken"]
  }

  threshold "failures" {
    max   = 0
    unit  = "1"
    basis = "stress-ng verifies what it computes"
  }

  threshold "elapsed" {
    stat  = "min"
    min   = 0.9
    unit  = "s"
    basis = "It was asked to run for a second"
  }
}
