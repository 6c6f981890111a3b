package sim_test

import (
	"strings"
	"testing"

	"github.com/rackproof/rackproof/runner/sim/rack"
)

func TestLscpu(t *testing.T) {
	const head = `{
   "lscpu": [
      {
         "field": "Architecture:",
         "data": "x86_64"
      },{
         "field": "CPU op-mode(s):",
         "data": "32-bit, 64-bit"
      },{
         "field": "Address sizes:",
         "data": "52 bits physical, 57 bits virtual"
      },{
         "field": "Byte Order:",
         "data": "Little Endian"
      },{
         "field": "CPU(s):",
         "data": "224"
      },{
         "field": "On-line CPU(s) list:",
         "data": "0-223"
      },{
         "field": "Vendor ID:",
         "data": "GenuineIntel"
      },{
         "field": "Model name:",
         "data": "Intel(R) Xeon(R) Platinum 8480C"
      },{
`
	onHosts(t, func(b bench) {
		got := b.run("gpu001", "lscpu", "-J").stdout
		if !strings.HasPrefix(got, head) || !strings.HasSuffix(got, "\n      }\n   ]\n}\n") {
			t.Errorf("lscpu -J:\n%s", got)
		}
		plain := b.run("gpu001", "lscpu").stdout
		if want := "Socket(s):               2\n"; !strings.Contains(plain, want) {
			t.Errorf("lscpu does not say %q:\n%s", want, plain)
		}
		b.refuses("gpu001", "lscpu", "-p")
	})
}

func TestLsblk(t *testing.T) {
	const head = `{
   "blockdevices": [
      {
         "name": "nvme0n1",
         "type": "disk",
         "size": 1920383410176,
         "model": "SAMSUNG MZ1L21T9HCLS-00A07",
         "serial": "634B2C01A2F144",
         "tran": "nvme"
      },{
`
	onHosts(t, func(b bench) {
		got := b.run("gpu001", "lsblk", "-J", "-b", "-d", "-o", "NAME,TYPE,SIZE,MODEL,SERIAL,TRAN").stdout
		if !strings.HasPrefix(got, head) || strings.Count(got, `"tran": "nvme"`) != 10 {
			t.Errorf("lsblk:\n%s", got)
		}
		if other := b.run("gpu002", "lsblk", "-J", "-b", "-d", "-o", "SERIAL").stdout; strings.Contains(other, "634B2C01A2F144") {
			t.Error("two nodes have the same disk")
		}
		b.refuses("gpu001", "lsblk", "-J")
		b.refuses("gpu001", "lsblk", "-J", "-b", "-d", "-o", "NAME,WWN")
		b.refuses("gpu001", "lsblk", "-o")
	})
}

func TestFindmnt(t *testing.T) {
	const root = `{
   "filesystems": [
      {
         "target": "/",
         "source": "/dev/nvme0n1p2",
         "fstype": "ext4",
         "options": "rw,relatime,errors=remount-ro"
      }`
	const shared = `{
         "target": "/mnt/scratch",
         "source": "10.10.0.1@o2ib:/scratch",
         "fstype": "lustre",
         "options": "rw,flock,user_xattr,lazystatfs,encrypt"
      }
   ]
}
`
	const end = "\n   ]\n}\n"
	const columns = "TARGET,SOURCE,FSTYPE,OPTIONS"
	onHosts(t, func(b bench) {
		b.breaks(rack.Fault{Kind: rack.KindMissingMount, Node: "gpu002"})
		const efi = `{
         "target": "/boot/efi",
         "source": "/dev/nvme0n1p1",
         "fstype": "vfat",
         "options": "rw,relatime,fmask=0077,dmask=0077,codepage=437,iocharset=iso8859-1,shortname=mixed,errors=remount-ro"
      }`
		b.says(0, root+","+efi+","+shared, "", "gpu001", "findmnt", "-J", "-l", "--real", "-o", columns)
		b.says(0, root+","+efi+end, "", "gpu002", "findmnt", "-J", "-l", "--real", "-o", columns)
		const only = "{\n   \"filesystems\": [\n      "
		b.says(0, only+shared, "", "gpu001", "findmnt", "-J", "-o", columns, "-t", "lustre", "-S", "10.10.0.1@o2ib:/scratch", "-T", "/mnt/scratch")
		b.says(0, only+shared, "", "gpu001", "findmnt", "-J", "-o", columns, "-t", "lustre", "-M", "/mnt/scratch")
		// Below an unmounted mount point is the local disk.
		b.says(1, "", "", "gpu002", "findmnt", "-J", "-o", columns, "-t", "lustre", "-T", "/mnt/scratch")
		b.says(1, "", "", "gpu002", "findmnt", "-J", "-o", columns, "-t", "lustre", "-M", "/mnt/scratch")
		b.says(0, root+end, "", "gpu002", "findmnt", "-J", "-o", columns, "-T", "/mnt/scratch")
		b.says(1, "", "", "gpu001", "findmnt", "-J", "-o", columns, "-T", "/mnt/scratch/nowhere")
		b.says(1, "", "", "gpu001", "findmnt", "-J", "-o", columns, "-t", "lustre", "-S", "other", "-T", "/mnt/scratch")
		b.says(0, "lustre\n", "", "gpu001", "findmnt", "-n", "-o", "FSTYPE", "-T", "/mnt/scratch")
		b.says(0, "TARGET   FSTYPE SOURCE\n/dev/shm tmpfs  tmpfs\n", "", "gpu001", "findmnt", "-o", "TARGET,FSTYPE,SOURCE", "-T", "/dev/shm")
		b.refuses("gpu001", "findmnt", "-J")
		b.refuses("gpu001", "findmnt", "-t", "nolustre", "-T", "/")
		b.refuses("gpu001", "findmnt", "-o", "UUID", "-T", "/")
		b.refuses("gpu001", "findmnt", "-T")
	})
}

func TestIPLink(t *testing.T) {
	onHosts(t, func(b bench) {
		const up = `[{"ifindex":6,"ifname":"ibs3","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"],"mtu":2044,"qdisc":"mq","operstate":"UP",` +
			`"linkmode":"DEFAULT","group":"default","txqlen":256,"link_type":"infiniband",` +
			`"address":"00:00:10:2c:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:00:01:30","broadcast":"00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"`
		const details = `,"promiscuity":0,"min_mtu":0,"max_mtu":0,"linkinfo":{"info_kind":"ipoib","info_data":{"key":"0xffff","mode":"datagram","umcast":"0000"}},` +
			`"inet6_addr_gen_mode":"none","num_tx_queues":1024,"num_rx_queues":128,"gso_max_size":65536,"gso_max_segs":65535,"parentbus":"pci","parentdev":"0000:5e:00.0"`
		b.says(0, up+"}]\n", "", "gpu002", "ip", "-j", "link", "show", "dev", "ibs3")
		b.says(0, up+details+"}]\n", "", "gpu002", "ip", "-j", "-d", "link", "show", "dev", "ibs3")
		b.says(1, "", "Device \"ib9\" does not exist.\n", "gpu002", "ip", "-j", "link", "show", "dev", "ib9")
		b.breaks(rack.Fault{Kind: rack.KindFlappingLink, Node: "gpu002", Part: "mlx5_3"})
		down := strings.Replace(up, `["BROADCAST","MULTICAST","UP","LOWER_UP"]`, `["NO-CARRIER","BROADCAST","MULTICAST","UP"]`, 1)
		down = strings.Replace(down, `"operstate":"UP"`, `"operstate":"DOWN"`, 1)
		b.says(0, down+"}]\n", "", "gpu002", "ip", "-j", "link", "show", "dev", "ibs3")
		b.says(0, "", "", "gpu001", "sleep", "1")
		b.says(0, up+"}]\n", "", "gpu002", "ip", "-j", "link", "show", "dev", "ibs3")
		if all := b.run("gpu001", "ip", "-j", "-d", "link", "show").stdout; strings.Count(all, `"ifname"`) != 10 || !strings.HasPrefix(all, `[{"ifindex":1,"ifname":"lo",`) {
			t.Errorf("ip lists:\n%s", all)
		}
		b.refuses("gpu001", "ip", "link", "show")
		b.refuses("gpu001", "ip", "-j", "addr")
		b.refuses("gpu001", "ip", "-j", "link", "show", "up")
	})
}
