# Eight nodes, seven of them with a fault of their own. No gate stops anything,
# so that each fault is seen where it strikes.

runbook "bad_day" {
  title   = "Eight nodes on a bad day"
  version = "1.0.0"
}

variable "ssh_config" {
  type = string
}

variable "known_hosts" {
  type = string
}

variable "storage" {
  type = string
}

variable "filesystem" {
  type = string
}

owner "site" {
  contact = "site@example.com"
}

fleet "rack" {
  hosts = "n[1-8]"

  executor "ssh" {
    ssh_config     = var.ssh_config
    known_hosts    = var.known_hosts
    shared_machine = true
  }
}

phase "storage" {}

phase "burn" {
  depends_on = [phase.storage]
}

test "reads" {
  phase    = phase.storage
  nodes    = fleet.rack
  owner    = owner.site
  duration = "30s"

  establishes = {
    "The disk reads." = [threshold.iops]
  }
  does_not_establish = ["Speed."]

  check "storage_fio" {
    path       = var.storage
    filesystem = var.filesystem
    jobs       = 1
    iodepth    = 1
    size       = "8MiB"
    runtime    = "1s"
    ramp       = "0s"
  }

  threshold "iops" {
    stat  = "min"
    min   = 1
    unit  = "1/s"
    basis = "It works at all"
  }
}

test "burn" {
  phase    = phase.burn
  nodes    = fleet.rack
  owner    = owner.site
  duration = "10s"
  deadline = "1m"

  establishes = {
    "The processors compute right." = [threshold.failed_stressors]
  }
  does_not_establish = ["Endurance."]

  check "host_burn" {
    workers    = 1
    method     = "matrixprod"
    load_floor = 1
  }

  threshold "failed_stressors" {
    max   = 0
    unit  = "1"
    basis = "stress-ng verifies what it computes"
  }
}
