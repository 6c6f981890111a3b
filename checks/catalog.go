package checks

// Builtin lists the checks of this build, in the order of the reference page.
func Builtin() Catalog {
	return Catalog{
		inventory{},
		command{},
		storageFio{},
		hostBurn{},
		failover{},
		gpuBurn{},
		kernelLog{},
		ncclAllreduce{},
	}
}
