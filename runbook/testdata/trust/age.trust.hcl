trust "customer" {
  key "compute_lead" {
    file      = "keys/compute.pub"
    owner     = "compute"
    not_after = "2027-06-30"
  }

  key "fabric_lead" {
    file  = "keys/fabric.pub"
    owner = "fabric"
  }

  role "operator" {
    any_of = [key.compute_lead]
  }

  role "approver" {
    any_of = [key.compute_lead, key.fabric_lead]
    quorum = 2
  }

  require {
    level    = "attested"
    max_age  = "730d"
    runbooks = ["sha256:3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a3f9a"]
    approved = true
  }

  accept {
    simulated   = true
    interrupted = 2
  }
}
