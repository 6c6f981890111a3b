# inputs: {"vars": {"soak": "24h"}, "files": {"site.runvars.hcl": "rate = 400\nracks = [\"A1\", \"A2\"]\n"}, "toolVersion": "0.1.0"}

# Every piece of the language that this build knows.

runbook "whole" {
  title            = "Pod 7 acceptance"
  version          = "3.2.0"
  required_version = ">= 0.1.0, < 2.0.0"
}

variable "soak" {
  type        = string
  description = "Length of the burn-in."
  default     = "72h"
  contract    = "72h"

  validation {
    condition     = seconds(var.soak) >= 1800
    error_message = "A burn-in shorter than 30 minutes does not reach thermal steady state."
  }
}

variable "rate" {
  type     = number
  contract = 400
}

variable "racks" {
  type    = list(string)
  default = []
}

variable "limits" {
  type    = object({ busbw = number, note = string })
  default = { busbw = 440, note = "agreed" }
}

locals {
  floor  = local.share * var.rate
  share  = 0.92
  layout = csvdecode(file("layout.csv"))
  racks  = distinct([for row in local.layout : row.rack])
  sizes  = [for n in [1, 16] : "${n}GiB"]
}

party "customer" {
  name = "Example Research Cloud"
}

owner "compute" {
  party   = party.customer
  name    = "GPU platform"
  contact = "gpu-oncall@example.com"
  key     = file("ops.pub")
}

owner "storage" {
  contact = "storage-oncall@example.com"
}

fleet "pod7" {
  hosts  = "gpu[01-07]"
  layout = local.layout

  executor "ssh" {
    user           = "acceptance"
    known_hosts    = "known_hosts.d/pod7"
    parallel       = 4
    clock_limit    = "2s"
    shared_machine = true
  }

  expect {
    gpus           = 8
    gpu_model      = "NVIDIA H100 80GB HBM3"
    driver_version = "= 580.82.07"
  }
}

nodeset "left" {
  hosts = "@pod7!gpu[05-07]"
}

nodeset "some" {
  hosts = "gpu06,@left&gpu[02-03],gpu01"
}

phase "recovery" {
  depends_on = [phase.node]
}

phase "inventory" {
  gate {
    require = "all"
    on_fail = "stop"
  }
}

phase "node" {
  depends_on = [phase.inventory]

  gate {
    require = "90%"
    on_fail = "exclude"
  }
}

evidence {
  capture         = [["nvidia-smi", "-q", "-x"], ["lscpu", "-J"]]
  sample_interval = "2s"
}

test "bill_of_materials" {
  phase    = phase.inventory
  nodes    = fleet.pod7
  owner    = owner.compute
  duration = "5m"

  establishes = {
    "Every node has the ordered driver." = [threshold.driver_version, threshold.same_driver]
    "Every node has the ordered parts."  = [threshold.mismatches]
  }
  does_not_establish = ["That any part performs."]

  check "inventory" {
    bill_of_materials = [{ part = "gpu", count = 8 }]
  }

  threshold "mismatches" {
    max   = 0
    unit  = "1"
    basis = "Purchase order 4471"
  }

  threshold "driver_version" {
    equals = "580.82.07"
    basis  = "Contract, annex A"
  }

  threshold "driver_version" {
    name  = "same_driver"
    stat  = "distinct"
    per   = "test"
    max   = 1
    unit  = "1"
    basis = "Contract, annex A"
  }
}

test "allreduce" {
  phase    = phase.node
  nodes    = fleet.pod7
  scope    = "node"
  owner    = owner.compute
  duration = "10m"
  deadline = "1h"
  silence  = "90s"

  establishes = {
    "All-reduce inside each node."         = [threshold.busbw, threshold.per_rack]
    "No node is slower than its siblings." = [threshold.busbw_outlier]
  }
  does_not_establish = ["Anything between nodes."]

  check "nccl_allreduce" {
    sizes = local.sizes
  }

  threshold "busbw" {
    at    = { size = "16384MiB" }
    min   = local.floor
    unit  = "GB/s"
    basis = "92 % of line rate"
  }

  threshold "busbw" {
    name  = "busbw_outlier"
    stat  = "mad_z"
    min   = -3.5
    unit  = "1"
    basis = "Modified z-score, Iglewicz and Hoaglin 1993"
  }

  threshold "busbw" {
    name        = "per_rack"
    stat        = "median"
    per         = "rack"
    min         = var.limits.busbw
    unit        = "GB/s"
    min_samples = 6
    basis       = "Sibling racks"
  }
}

test "pairs" {
  phase    = phase.node
  nodes    = nodeset.some
  scope    = "pair"
  owner    = owner.compute
  duration = "10m"

  establishes        = { "Pairs are fast." = [threshold.busbw] }
  does_not_establish = ["The spine."]

  check "nccl_allreduce" {
    sizes = ["1GiB"]
  }

  threshold "busbw" {
    min   = 300
    unit  = "GB/s"
    basis = "Contract, annex B"
  }
}

test "burn_in" {
  phase    = phase.node
  nodes    = nodeset.left
  owner    = owner.compute
  duration = var.soak
  hazard   = "full_power"

  establishes        = { "Every GPU ran at full load for ${var.soak}." = [threshold.gflops] }
  does_not_establish = ["The annual failure rate."]

  check "gpu_burn" {}

  threshold "gflops" {
    stat  = "p5"
    per   = "test"
    min   = 50000
    unit  = "GFLOP/s"
    basis = "Contract, annex C"
  }
}

test "path_loss" {
  phase    = phase.recovery
  nodes    = fleet.pod7
  owner    = owner.storage
  duration = "20m"
  hazard   = "kills_process"

  establishes        = { "A client goes on within the limit." = [threshold.outage] }
  does_not_establish = ["Loss of a server."]

  check "failover" {
    probe {
      every = "500ms"
    }

    client "small" {
      argv = ["dd", "bs=4k"]
    }

    client "large" {
      argv  = ["dd", "bs=1M"]
      limit = 1048576
    }
  }

  fault "process_kill" {
    nodes   = nodeset.some
    part    = "mds0"
    after   = "2m"
    for     = "1m"
    process = "mdsd"
  }

  threshold "outage" {
    max   = 30
    unit  = "s"
    basis = "Service objective 2.4"
  }
}

release "left" {
  nodes   = nodeset.left
  require = [phase.inventory, phase.node]
  waivers = 0
}

release "final" {
  nodes   = fleet.pod7
  require = [phase.inventory, phase.node, phase.recovery]
}
