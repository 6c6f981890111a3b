# A short acceptance of a rack with eight GPUs a node: what it is made of,
# NCCL, storage, burn-in, failover. `make demo` raises a simulated rack and
# runs this over SSH; its bounds are of that rack.

runbook "quickstart" {
  title            = "Quickstart on a simulated rack"
  version          = "1.0.0"
  required_version = ">= 0.1.0, < 2.0.0"
}

variable "hosts" {
  type        = string
  default     = "gpu[001-032]"
  description = "The nodes."
}

variable "leader" {
  type        = string
  default     = "gpu001"
  description = "The node that leads the key-value service."
}

variable "layout" {
  type        = string
  default     = "layout.csv"
  description = "Where each node stands."
}

variable "ssh_config" {
  type        = string
  description = "ssh_config with an entry for each node."
}

variable "known_hosts" {
  type        = string
  description = "Host keys of the nodes."
}

locals {
  layout = csvdecode(file(var.layout))
  nics = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"]
}

# ---------------------------------------------------------------- people ----

party "customer" {
  name = "Example Research Cloud"
}

party "vendor" {
  name = "Example Systems"
}

owner "compute" {
  party   = party.customer
  name    = "GPU platform"
  contact = "gpu-oncall@example.com"
}

owner "fabric" {
  party   = party.customer
  name    = "Fabric"
  contact = "fabric-oncall@example.com"
}

owner "storage" {
  party   = party.vendor
  name    = "Storage delivery"
  contact = "storage@example.com"
}

# ----------------------------------------------------------------- fleet ----

fleet "rack" {
  hosts  = var.hosts
  layout = local.layout

  executor "ssh" {
    ssh_config  = var.ssh_config
    known_hosts = var.known_hosts
  }

  expect {
    gpus           = 8
    gpu_model      = "NVIDIA H100 80GB HBM3"
    driver_version = "550.90.07"
  }
}

nodeset "leader" {
  hosts = var.leader
}

# ---------------------------------------------------------------- phases ----

phase "inventory" {}

phase "node" {
  depends_on = [phase.inventory]
}

phase "fabric" {
  depends_on = [phase.node]
}

phase "storage" {
  depends_on = [phase.fabric]
}

phase "burn_in" {
  depends_on = [phase.storage]
}

phase "recovery" {
  depends_on = [phase.burn_in]
}

phase "aftermath" {
  depends_on = [phase.recovery]
}

# ------------------------------------------------------------- inventory ----

test "bill_of_materials" {
  phase    = phase.inventory
  nodes    = fleet.rack
  owner    = owner.compute
  duration = "1m"

  establishes = {
    "Every node has the GPUs, the model and the driver that were ordered."                                       = [threshold.mismatches, threshold.gpu_present]
    "Every GPU has all lanes of its PCIe link and all NVLinks, and no memory error since the driver was loaded." = [threshold.pcie_width, threshold.nvlinks_up, threshold.ecc_uncorrected]
    "Every link of the fabric is up at its rate."                                                                = [threshold.link_up, threshold.link_rate]
    "Every node's clock is right to within two seconds."                                                         = [threshold.clock_offset, threshold.clock_uncertainty]
  }
  does_not_establish = ["That any of these parts performs to specification."]

  check "inventory" {
    gpus  = true
    links = true
    nics  = local.nics
  }

  threshold "mismatches" {
    max   = 0
    unit  = "1"
    basis = "The fleet's expect block"
  }

  threshold "gpu_present" {
    min   = 1
    unit  = "1"
    basis = "Eight GPUs were ordered"
  }

  threshold "pcie_width" {
    min   = 16
    unit  = "1"
    basis = "PCIe x16"
  }

  threshold "nvlinks_up" {
    min   = 18
    unit  = "1"
    basis = "An H100 SXM has 18 NVLinks"
  }

  threshold "ecc_uncorrected" {
    max   = 0
    unit  = "1"
    basis = "A new GPU has none"
  }

  threshold "link_up" {
    min   = 1
    unit  = "1"
    basis = "Eight rails were ordered"
  }

  threshold "link_rate" {
    min   = 400
    unit  = "Gb/s"
    basis = "NDR InfiniBand"
  }

  threshold "clock_offset" {
    max   = 2
    unit  = "s"
    basis = "Logs of two nodes can then be laid side by side"
  }

  threshold "clock_uncertainty" {
    max   = 2
    unit  = "s"
    basis = "A clock read more slowly says nothing about the offset"
  }
}

# ------------------------------------------------------------------ node ----

test "allreduce_node" {
  phase    = phase.node
  nodes    = fleet.rack
  scope    = "node"
  owner    = owner.compute
  duration = "1m"

  establishes = {
    "Bus bandwidth of an all-reduce of the eight GPUs of each node." = [threshold.busbw]
    "The result of every all-reduce is right."                       = [threshold.wrong_elements]
  }
  does_not_establish = ["Anything about the network between nodes."]

  check "nccl_allreduce" {
    sizes      = ["128MiB", "256MiB", "512MiB", "1GiB", "2GiB", "4GiB"]
    iterations = 5
    warmup     = 1
  }

  threshold "busbw" {
    stat  = "min"
    at    = { size = "4GiB" }
    min   = 450
    unit  = "GB/s"
    basis = "94 % of what eight such GPUs reach with NVLink SHARP"
  }

  threshold "wrong_elements" {
    max   = 0
    unit  = "1"
    basis = "NCCL's data check"
  }
}

# ---------------------------------------------------------------- fabric ----

test "allreduce_fleet" {
  phase    = phase.fabric
  nodes    = fleet.rack
  scope    = "fleet"
  owner    = owner.fabric
  duration = "2m"

  establishes = {
    "Bus bandwidth of one all-reduce of all GPUs over eight rails." = [threshold.busbw]
    "The result of every all-reduce is right."                      = [threshold.wrong_elements]
  }
  does_not_establish = ["Behaviour under competing traffic."]

  check "nccl_allreduce" {
    sizes      = ["128MiB", "256MiB", "512MiB", "1GiB", "2GiB", "4GiB"]
    iterations = 5
    warmup     = 1
  }

  threshold "busbw" {
    stat  = "min"
    at    = { size = "4GiB" }
    min   = 0.88 * 400 * 8 / 8
    unit  = "GB/s"
    basis = "88 % of line rate across eight rails"
  }

  threshold "wrong_elements" {
    max   = 0
    unit  = "1"
    basis = "NCCL's data check"
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
    "Random 4 KiB reads by all nodes at once, on the shared filesystem." = [threshold.total_iops, threshold.iops, threshold.read_clat_p99]
    "No client is starved."                                              = [threshold.fairness]
  }
  does_not_establish = ["Throughput of large transfers, or durability."]

  check "storage_fio" {
    path       = "/mnt/scratch"
    filesystem = "lustre"
    mount      = "/mnt/scratch"
    profile    = "small_reads"
    clients    = [length(local.layout)]
    runtime    = "1s"
    ramp       = "0s"
  }

  threshold "total_iops" {
    stat  = "min"
    min   = 5000000
    unit  = "1/s"
    basis = "Data loading of 256 GPUs"
  }

  threshold "iops" {
    stat  = "min"
    per   = "node"
    min   = 150000
    unit  = "1/s"
    basis = "Data loading of eight GPUs"
  }

  threshold "read_clat_p99" {
    stat  = "max"
    max   = 20
    unit  = "ms"
    basis = "A loader waits for its slowest request"
  }

  threshold "fairness" {
    stat  = "min"
    min   = 0.8
    unit  = "1"
    basis = "Slowest client over median client"
  }
}

# --------------------------------------------------------------- burn-in ----

test "gpu_burn_in" {
  phase    = phase.burn_in
  nodes    = fleet.rack
  owner    = owner.compute
  duration = "4s"
  deadline = "2m"

  establishes = {
    "Every GPU computed under full load, and what it computed was right." = [threshold.hours_under_load, threshold.errors, threshold.faulty, threshold.gflops_min]
    "No GPU was hot, and none was slowed down by its hardware."           = [threshold.temperature_max, threshold.temperature_spread, threshold.hw_slowdown, threshold.hw_thermal, threshold.hw_power_brake]
  }
  does_not_establish = ["Endurance: four seconds show that the burn-in works, not that the rack does."]

  check "gpu_burn" {
    warmup     = "1s"
    load_floor = 80
    soft_kill  = "1s"
    sample     = "500ms"
  }

  threshold "hours_under_load" {
    min   = 2.5 / 3600
    unit  = "h"
    basis = "Most of the four seconds"
  }

  threshold "errors" {
    max   = 0
    unit  = "1"
    basis = "gpu-burn compares every product"
  }

  threshold "faulty" {
    max   = 0
    unit  = "1"
    basis = "gpu-burn's own verdict"
  }

  threshold "gflops_min" {
    min   = 300000
    unit  = "GFLOP/s"
    basis = "Three quarters of what such GPUs reach at their power limit"
  }

  threshold "temperature_max" {
    max   = 83
    unit  = "C"
    basis = "Four degrees below the hardware's slowdown"
  }

  threshold "temperature_spread" {
    max   = 12
    unit  = "C"
    basis = "Siblings in one air stream"
  }

  threshold "throttle_seconds" {
    name  = "hw_slowdown"
    at    = { reason = "hw_slowdown" }
    max   = 0
    unit  = "s"
    basis = "No such slowdown in a burn-in"
  }

  threshold "throttle_seconds" {
    name  = "hw_thermal"
    at    = { reason = "hw_thermal" }
    max   = 0
    unit  = "s"
    basis = "No such slowdown in a burn-in"
  }

  threshold "throttle_seconds" {
    name  = "hw_power_brake"
    at    = { reason = "hw_power_brake" }
    max   = 0
    unit  = "s"
    basis = "No such slowdown in a burn-in"
  }
}

# -------------------------------------------------------------- recovery ----

test "service_failover" {
  phase    = phase.recovery
  nodes    = fleet.rack
  scope    = "fleet"
  owner    = owner.compute
  hazard   = "kills_service"
  duration = "20s"

  establishes = {
    "When the leader of the key-value service is killed, another one takes over." = [threshold.failed_probes, threshold.outage, threshold.return_to_service]
    "No acknowledged write is lost."                                              = [threshold.lost_records, threshold.wrong_records]
  }
  does_not_establish = ["Recovery from a loss of power, or of a network partition."]

  fault "process_kill" {
    nodes   = nodeset.leader
    process = "etcd"
    undo    = ["systemctl", "start", "etcd"]
    after   = "1s"
    for     = "2s"
  }

  check "failover" {
    settle = "1s"

    probe {
      period  = "50ms"
      timeout = "1s"
      write   = ["etcdctl", "--command-timeout=900ms", "put", "rackproof/{record}", "{record}"]
      read    = ["etcdctl", "get", "--prefix", "rackproof/", "--print-value-only"]
    }
  }

  # The fault must have hit: another node may lead by now.
  threshold "failed_probes" {
    min   = 1
    unit  = "1"
    basis = "Without a leader no write is acknowledged"
  }

  threshold "outage" {
    max   = 5
    unit  = "s"
    basis = "The jobs' own timeout is ten seconds"
  }

  threshold "return_to_service" {
    max   = 5
    unit  = "s"
    basis = "The jobs' own timeout is ten seconds"
  }

  threshold "lost_records" {
    max   = 0
    unit  = "1"
    basis = "An acknowledged write is durable"
  }

  threshold "wrong_records" {
    max   = 0
    unit  = "1"
    basis = "Nobody else writes there"
  }
}

# ------------------------------------------------------------- aftermath ----

test "kernel_messages" {
  phase    = phase.aftermath
  nodes    = fleet.rack
  owner    = owner.compute
  duration = "1m"

  establishes = {
    "Since boot no GPU has reported a fault of its hardware."                         = [threshold.xid_fatal, threshold.xid_inconclusive, threshold.xid_review, threshold.sxid_fatal]
    "Since boot no link has gone down, and the machine has logged no hardware error." = [threshold.link_down, threshold.hardware_errors]
  }
  does_not_establish = ["Faults that the kernel does not log."]

  check "kernel_log" {
    window = "boot"
    gpus   = 8
    nics   = local.nics
  }

  threshold "xid_fatal" {
    max   = 0
    unit  = "1"
    basis = "Each is a repair"
  }

  threshold "xid_inconclusive" {
    max   = 0
    unit  = "1"
    basis = "Each asks for a reset and a test again"
  }

  threshold "xid_review" {
    max   = 0
    unit  = "1"
    basis = "Each must be explained first"
  }

  threshold "sxid_fatal" {
    max   = 0
    unit  = "1"
    basis = "Each is a repair"
  }

  threshold "link_down" {
    max   = 0
    unit  = "1"
    basis = "A cable that flaps will fail"
  }

  threshold "hardware_errors" {
    max   = 0
    unit  = "1"
    basis = "Each is a repair"
  }
}

# --------------------------------------------------------------- release ----

release "handover" {
  nodes   = fleet.rack
  require = [phase.inventory, phase.node, phase.fabric, phase.storage, phase.burn_in, phase.recovery, phase.aftermath]
  waivers = 0
}
