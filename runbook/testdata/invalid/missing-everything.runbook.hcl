# An empty runbook.
