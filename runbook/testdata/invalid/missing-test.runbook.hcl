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

