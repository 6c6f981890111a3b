package sim

// builtin lists the tools of this build by name.
func builtin() map[string]Tool {
	return map[string]Tool{
		"cat": cat, "date": date, "echo": echo, "env": env, "flock": flock, "head": head,
		"id": id, "mkdir": mkdir, "nice": nice, "rm": rm, "sleep": sleep, "stdbuf": stdbuf, "sudo": sudo, "tail": tail,
		"tee": tee, "timeout": timeout, "true": succeed, "false": fail,

		"etcdctl": etcdctl, "find": find, "findmnt": findmnt, "fio": fio, "ip": ip, "lsblk": lsblk, "lscpu": lscpu,
		"pgrep": pgrep, "pkill": pkill, "service": serviceTool, "stress-ng": stressNG, "systemctl": systemctl,
		"awk": awk, "sed": sed, "uname": uname,

		"all_reduce_perf": allReducePerf, "dmesg": dmesg, "gpu_burn": gpuBurn, "ibstat": ibstat, "journalctl": journalctl, "lspci": lspci,
		"mpiexec": mpiexec, "mpiexec.hydra": mpiexec, "mpirun": mpirun, "nvidia-smi": nvidiaSMI, "srun": srun,
	}
}
