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
  layout = csvdecode(file(var.layout))

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
