# Acceptance of 32 nodes that are 32 sshd processes on one machine: everything
# is real but the rack. `make demo-sshd` raises them and runs this.

runbook "sshd_32" {
  title            = "32 sshd on one machine"
  version          = "1.0.0"
  required_version = ">= 0.1.0, < 2.0.0"
}

variable "ssh_config" {
  type        = string
  description = "ssh_config with an entry for each node."
}

variable "known_hosts" {
  type        = string
  description = "Host keys of the nodes."
}

variable "storage" {
  type        = string
  description = "Folder on the filesystem to be measured."
}

variable "filesystem" {
  type        = string
  description = "Type of the filesystem that the folder must be on."
}

variable "service_host" {
  type        = string
  description = "Address of the service that is killed."
}

variable "service_port" {
  type        = string
  description = "Port of the service."
}

variable "service_dir" {
  type        = string
  description = "Folder of the service, with redis.conf and redis.pid."
}

locals {
  redis = ["redis-cli", "-h", var.service_host, "-p", var.service_port, "-e"]
}

# ---------------------------------------------------------------- people ----

party "customer" {
  name = "Example Research Cloud"
}

owner "compute" {
  party   = party.customer
  name    = "GPU platform"
  contact = "gpu-oncall@example.com"
}

owner "storage" {
  party   = party.customer
  name    = "Storage platform"
  contact = "storage-oncall@example.com"
}

# ----------------------------------------------------------------- fleet ----

fleet "rack" {
  hosts = "n[01-32]"

  executor "ssh" {
    ssh_config     = var.ssh_config
    known_hosts    = var.known_hosts
    shared_machine = true
  }

  expect {
    arch    = "x86_64"
    sockets = 1
  }
}

nodeset "writers" {
  hosts = "n[01-02]"
}

nodeset "service" {
  hosts = "n32"
}

# ---------------------------------------------------------------- phases ----

phase "inventory" {
  gate {
    require = "all"
    on_fail = "stop"
  }
}

phase "storage" {
  depends_on = [phase.inventory]

  gate {
    require = "90%"
    on_fail = "continue"
  }
}

phase "burn" {
  depends_on = [phase.storage]
}

phase "recovery" {
  depends_on = [phase.burn]
}

# ------------------------------------------------------------- inventory ----

test "bill_of_materials" {
  phase    = phase.inventory
  nodes    = fleet.rack
  owner    = owner.compute
  duration = "1m"

  establishes = {
    "Every node reports the expected architecture and sockets." = [threshold.mismatches]
    "Every node has the memory that the tests need."            = [threshold.memory_total]
    "All nodes run one kernel and one release of fio."          = [threshold.kernel, threshold.fio_version]
    "Every node's clock is right to within two seconds."        = [threshold.clock_offset, threshold.clock_uncertainty]
  }
  does_not_establish = ["That any of these parts performs to specification."]

  check "inventory" {
    version "fio" {
      argv = ["fio", "--version"]
    }
  }

  threshold "mismatches" {
    max   = 0
    unit  = "1"
    basis = "The fleet's expect block"
  }

  threshold "clock_offset" {
    max   = 2
    unit  = "s"
    basis = "Logs of two nodes can then be laid side by side"
  }

  threshold "kernel" {
    stat  = "distinct"
    per   = "test"
    max   = 1
    unit  = "1"
    basis = "One image for all nodes"
  }

  threshold "fio_version" {
    stat  = "distinct"
    per   = "test"
    max   = 1
    unit  = "1"
    basis = "One image for all nodes"
  }

  threshold "memory_total" {
    stat  = "min"
    min   = 1
    unit  = "GiB"
    basis = "The tests need as much"
  }

  threshold "clock_uncertainty" {
    stat  = "max"
    max   = 2
    unit  = "s"
    basis = "A clock read more slowly says nothing about the offset"
  }
}

# --------------------------------------------------------------- storage ----

test "small_reads" {
  phase    = phase.storage
  nodes    = fleet.rack
  scope    = "fleet"
  owner    = owner.storage
  duration = "1m"

  establishes = {
    "Random 4 KiB reads by 1, 8 and 32 clients at once, on the declared filesystem." = [threshold.total_iops, threshold.total_bw, threshold.worst_p99]
    "No client is starved."                                                          = [threshold.fairness, threshold.iops, threshold.read_bw, threshold.read_clat_mean, threshold.read_clat_p99]
  }
  does_not_establish = ["Speed: all clients share one disk, and the bounds only tell a working one from a broken one."]

  check "storage_fio" {
    path       = var.storage
    filesystem = var.filesystem
    profile    = "small_reads"
    clients    = [1, 8, 32]
    jobs       = 1
    iodepth    = 4
    size       = "8MiB"
    runtime    = "1s"
    ramp       = "0s"
  }

  threshold "total_iops" {
    stat  = "min"
    min   = 200
    unit  = "1/s"
    basis = "A disk that spins does as much"
  }

  threshold "iops" {
    stat  = "min"
    per   = "node"
    min   = 5
    unit  = "1/s"
    basis = "Above zero by more than chance"
  }

  threshold "worst_p99" {
    stat  = "max"
    max   = 2000
    unit  = "ms"
    basis = "A request that takes longer is a hang to those who wait"
  }

  threshold "fairness" {
    stat  = "min"
    min   = 0.05
    unit  = "1"
    basis = "Slowest client over median client, on a machine with fewer cores than clients"
  }

  threshold "total_bw" {
    stat  = "min"
    min   = 0.1
    unit  = "MiB/s"
    basis = "A working disk does more"
  }

  threshold "read_bw" {
    stat  = "min"
    min   = 0.01
    unit  = "MiB/s"
    basis = "A working disk does more"
  }

  threshold "read_clat_mean" {
    stat  = "max"
    max   = 2000
    unit  = "ms"
    basis = "A request that takes longer is a hang to those who wait"
  }

  threshold "read_clat_p99" {
    stat  = "max"
    max   = 2000
    unit  = "ms"
    basis = "A request that takes longer is a hang to those who wait"
  }
}

test "durable_writes" {
  phase    = phase.storage
  nodes    = nodeset.writers
  owner    = owner.storage
  duration = "1m"

  establishes = {
    "An fsync after each 4 KiB write returns." = [threshold.fsync_p99, threshold.fsync_mean, threshold.iops, threshold.write_bw]
  }
  does_not_establish = ["That data survives a loss of power."]

  check "storage_fio" {
    path       = var.storage
    filesystem = var.filesystem
    profile    = "fsync"
    size       = "4MiB"
    runtime    = "1s"
    ramp       = "0s"
  }

  threshold "fsync_p99" {
    stat  = "max"
    max   = 2000
    unit  = "ms"
    basis = "A request that takes longer is a hang to those who wait"
  }

  threshold "fsync_mean" {
    stat  = "max"
    max   = 2000
    unit  = "ms"
    basis = "A request that takes longer is a hang to those who wait"
  }

  threshold "iops" {
    stat  = "min"
    min   = 1
    unit  = "1/s"
    basis = "A working disk does more"
  }

  threshold "write_bw" {
    stat  = "min"
    min   = 0.001
    unit  = "MiB/s"
    basis = "A working disk does more"
  }
}

# ------------------------------------------------------------------ burn ----

test "burn_in" {
  phase    = phase.burn
  nodes    = fleet.rack
  owner    = owner.compute
  duration = "6s"
  deadline = "1m"

  establishes = {
    "The processors computed under load, and what they computed was right." = [threshold.hours_under_load, threshold.bogo_ops_rate, threshold.failed_stressors]
  }
  does_not_establish = ["Endurance: six seconds show that the burn-in works, not that the rack does."]

  check "host_burn" {
    stressors  = ["cpu"]
    workers    = 1
    method     = "matrixprod"
    load_floor = 30
    sample     = "2s"
  }

  threshold "hours_under_load" {
    stat  = "min"
    min   = 0.0003
    unit  = "h"
    basis = "A fifth of the six seconds: the machine is shared by all nodes"
  }

  threshold "failed_stressors" {
    max   = 0
    unit  = "1"
    basis = "stress-ng verifies what it computes"
  }

  threshold "bogo_ops_rate" {
    stat  = "min"
    min   = 0.1
    unit  = "1/s"
    basis = "Each node got a share of the processors"
  }
}

# -------------------------------------------------------------- recovery ----

test "service_killed" {
  phase    = phase.recovery
  nodes    = fleet.rack
  scope    = "fleet"
  owner    = owner.storage
  duration = "30s"
  hazard   = "kills_service"

  establishes = {
    "The record service is back within the limit after it was killed." = [threshold.outage, threshold.return_to_service, threshold.failed_probes, threshold.probes]
    "No acknowledged record is lost, and none appears by itself."       = [threshold.lost_records, threshold.wrong_records]
    "The node is afterwards what it was."                               = [threshold.mismatches]
  }
  does_not_establish = ["Failover to another node: this service has one.", "Loss of power."]

  check "failover" {
    probe {
      period = "200ms"
      write  = concat(local.redis, ["RPUSH", "records", "{record}"])
      read   = concat(local.redis, ["LRANGE", "records", "0", "-1"])
      from   = "n01"
    }
    settle   = "4s"
    accepted = ["pgrep", "-c", "-x", "redis-server"]
  }

  fault "process_kill" {
    nodes   = nodeset.service
    after   = "4s"
    for     = "1s"
    pidfile = "${var.service_dir}/redis.pid"
    undo    = ["redis-server", "${var.service_dir}/redis.conf"]
  }

  threshold "outage" {
    stat  = "max"
    max   = 15
    unit  = "s"
    basis = "Service objective of the example"
  }

  threshold "return_to_service" {
    stat  = "max"
    max   = 20
    unit  = "s"
    basis = "Service objective of the example"
  }

  threshold "lost_records" {
    max   = 0
    unit  = "1"
    basis = "Every write is on disk before it is acknowledged"
  }

  threshold "wrong_records" {
    max   = 0
    unit  = "1"
    basis = "Every write is on disk before it is acknowledged"
  }

  threshold "mismatches" {
    max   = 0
    unit  = "1"
    basis = "As many servers run as before"
  }

  threshold "probes" {
    stat  = "min"
    min   = 20
    unit  = "1"
    basis = "Ten before the kill and ten after it"
  }

  threshold "failed_probes" {
    stat  = "max"
    max   = 75
    unit  = "1"
    basis = "Fifteen seconds of probes"
  }
}

# --------------------------------------------------------------- release ----

release "final" {
  nodes   = fleet.rack
  require = [phase.inventory, phase.storage, phase.burn, phase.recovery]
  waivers = 0
}
