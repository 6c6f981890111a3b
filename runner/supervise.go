package runner

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

// Grace is how long a command that is told to end has between TERM and KILL.
const Grace = 3 * time.Second

// superviseBoot makes the shell that runs it the leader of its own process
// group and then runs the script, its first argument. sshd gives a command a
// session of its own; sudo and a plain fork do not.
const superviseBoot = `rp_s=$1; shift; rp_g() { rp_p=$3; }; rp_p=; rp_t=; ` +
	`read -r rp_t </proc/$$/stat; rp_g ${rp_t##*") "}; ` +
	`if [ "$rp_p" = "$$" ]; then eval "$rp_s"; else exec setsid /bin/sh -c "$rp_s" rackproof "$@"; fi`

// superviseScript runs one command under supervision. Arguments: the watcher's
// text, the far side's deadline in whole seconds (0: none), the grace in whole
// seconds, the number of bytes of standard input that are the command's, a
// nonce, words NAME=value, "--", the command's words.
//
// It starts the watcher and then becomes the command, so that whoever waits
// for it sees its true status, and the command is its group's leader.
//
// Just before that it writes "rackproof NONCE start" to both streams: what
// comes earlier is noise of a login shell. A command that cannot be started is
// reported by a line "rackproof NONCE REASON ..." on standard error.
//
// The texts hold no newline, single quote, backslash or exclamation mark, so
// that sh, csh and fish as login shells all hand them over unchanged.
const superviseScript = `rp_w=$1 rp_d=$2 rp_g=$3 rp_n=$4 rp_k=$5; shift 5; ` +
	`rp_say() { echo "rackproof $rp_k $*" >&2; }; ` +
	`trap "" TERM; exec 3<&0; ` +
	// The command's standard input, in a file that has lost its name.
	`if [ "$rp_n" -gt 0 ]; then rp_f=; ` +
	`for rp_t in "${TMPDIR:-/tmp}" /var/tmp /dev/shm; do ` +
	`rp_f=$(umask 077; PATH=$PATH:/usr/bin:/bin mktemp "$rp_t/rackproof.XXXXXX" 2>/dev/null) && break; done; ` +
	`if [ -z "$rp_f" ]; then rp_say node-disk-full no directory for standard input; exit 97; fi; ` +
	`if PATH=$PATH:/usr/bin:/bin head -c "$rp_n" <&3 >"$rp_f"; then :; else ` +
	`rm -f "$rp_f"; rp_say node-disk-full standard input could not be kept; exit 97; fi; ` +
	`rp_t=$(PATH=$PATH:/usr/bin:/bin wc -c <"$rp_f"); exec 0<"$rp_f"; PATH=$PATH:/usr/bin:/bin rm -f "$rp_f"; ` +
	`if [ "$((rp_t))" -ne "$rp_n" ]; then rp_say lost standard input ended early; exit 97; fi; ` +
	`else exec 0</dev/null; fi; ` +
	// The watcher, with the session's input. Its last argument only shows in
	// a list of processes.
	`rp_m=; for rp_t; do case $rp_t in RACKPROOF_MARK=*) rp_m=$rp_t;; --) break;; esac; done; ` +
	`rp_t=$PATH:/usr/bin:/bin; if PATH=$rp_t command -v setsid >/dev/null; then :; else ` +
	`rp_say not-run setsid is not installed; exit 97; fi; ` +
	`PATH=$rp_t setsid /bin/sh -c "$rp_w" rackproof-watch $$ "$rp_d" "$rp_g" "$rp_m" "$rp_k" <&3 3<&- >/dev/null 2>&1 & ` +
	`exec 3<&-; trap - TERM; ` +
	// The command's environment, then the command.
	`until [ "$1" = -- ]; do export "$1"; shift; done; shift; ` +
	`rp_f=; case $1 in */*) if [ -f "$1" ] && [ -x "$1" ]; then rp_f=$1; fi;; *) ` +
	`set -f; IFS=:; for rp_t in $PATH; do ` +
	`if [ -f "${rp_t:-.}/$1" ] && [ -x "${rp_t:-.}/$1" ]; then rp_f=${rp_t:-.}/$1; break; fi; ` +
	`done; unset IFS; set +f;; esac; ` +
	`if [ -z "$rp_f" ]; then rp_say tool-missing "$PATH"; exit 97; fi; ` +
	// A binary for another architecture, which some shells would read as a
	// script. ELF: magic in bytes 0-3, e_machine in bytes 18-19.
	`rp_a() { rp_m=$1$2$3$4 rp_e=${19}${20}; }; ` +
	`case $rp_f in /bin/*|/sbin/*|/usr/bin/*|/usr/sbin/*) ;; *) ` +
	`rp_a $(PATH=$PATH:/usr/bin:/bin od -An -v -tx1 -N20 /proc/$$/exe 2>/dev/null); rp_i=$rp_e; ` +
	`rp_a $(PATH=$PATH:/usr/bin:/bin od -An -v -tx1 -N20 "$rp_f" 2>/dev/null); ` +
	`for rp_t in /proc/sys/fs/binfmt_misc/qemu-*; do if [ -e "$rp_t" ]; then rp_m=; fi; done; ` +
	`case $rp_m:$rp_i:$rp_e in 7f454c46:"$rp_e":*|7f454c46:3e00:0300|7f454c46:b700:2800) ;; ` +
	`7f454c46:?*) rp_say arch "$rp_e"; exit 97;; esac;; esac; ` +
	// dash runs the trap where exec fails; bash would leave without it.
	`rp_x() { rp_say exec-failed; }; shopt -s execfail 2>/dev/null; ` +
	`echo "rackproof $rp_k start"; rp_say start; trap rp_x EXIT; exec "$@"`

// superviseWatch ends the command's group when standard input comes to its end
// (the runner is gone, or has closed the session) or the deadline has passed.
// Arguments: the group, the deadline, the grace, a text that only shows in a
// list of processes, the nonce.
//
// A process that has left the group, as each job of fio does, would wait for
// ever for a parent that was killed. So where the command was cut short,
// whatever has its nonce in the environment is ended too, twice, for what was
// forked meanwhile. What a command leaves that ended by itself, such as a
// daemon that it started, goes on.
//
// It has a session of its own, so that it can ask whether anybody is left in
// the group. sshd ends the input when the command has exited. What is still
// there then has a little longer than the runner needs to see that it holds
// the output; where nobody is left the watcher is gone at once.
const superviseWatch = `PATH=$PATH:/usr/bin:/bin; trap "" TERM; ` +
	// Tenths of a second by the machine's clock: on a busy node a sleep of a
	// tenth takes longer.
	`rp_now() { rp_u=; read -r rp_u rp_x </proc/uptime; rp_u=${rp_u%.*}${rp_u#*.}; }; ` +
	`rp_wait() { rp_i=$2; rp_now; rp_z=$rp_u; while [ "$rp_i" -gt 0 ] && kill -0 -$1; do ` +
	`if sleep 0.1; then rp_i=$((rp_i - 1)); else sleep 1; rp_i=$((rp_i - 10)); fi; ` +
	`rp_now; if [ -n "$rp_u" ]; then rp_i=$(($2 - (rp_u - rp_z) / 10)); fi; done; }; ` +
	`rp_k=$5; rp_sweep() { for rp_p in $(grep -lsF "` + nonceVariable + `=$rp_k" /proc/[0-9]*/environ); do ` +
	`rp_p=${rp_p%/environ}; kill -KILL ${rp_p#/proc/}; done; }; ` +
	`rp_end() { rp_c=; kill -0 $1 && rp_c=1; kill -TERM -$1; rp_wait $1 $(($2 * 10)); kill -KILL -$1; ` +
	`if [ -n "$rp_c" ]; then rp_sweep; rp_sweep; fi; kill -KILL -$$; }; ` +
	`if [ "$2" -gt 0 ]; then { exec </dev/null; sleep "$2"; rp_end $1 $3; } & fi; ` +
	`while read -r rp_t; do :; done; ` +
	`if kill -0 $1; then rp_end $1 $3; else rp_wait $1 25; rp_end $1 1; fi`

// SuperviseDigest is the digest of the constant part of every supervised
// command: the boot text, the script and the watcher, each on a line.
const SuperviseDigest evidence.Digest = "sha256:fce439672de872d33384d41b0a2b63dbe8be8d1314c2fb6c46409ced62f87948"

// superviseSlack is how much later than the runner's clock the far side's own
// deadline ends a command: only if the runner could not.
const superviseSlack = 5 * time.Second

// maxExec is the longest exec string. Linux gives one argument of a program
// 128 KiB (MAX_ARG_STRLEN), and the login shell gets it as one.
const maxExec = 128<<10 - 1

// nonceVariable is the environment variable with which a command, and all that
// comes of it, bears the nonce of its supervision.
const nonceVariable = "RACKPROOF_TASK"

// scriptPrefix begins the names of the script's own variables.
const scriptPrefix = "rp_"

// forcedEnv is the environment of every command, which no task can change:
// tools print what their parsers were written for, and nothing for a terminal.
var forcedEnv = map[string]string{
	"LC_ALL": "C", "LANG": "C", "TERM": "dumb", "NO_COLOR": "1", "TZ": "UTC", "COLUMNS": "200",
}

// environment is own below the forced environment.
func environment(own map[string]string) map[string]string {
	env := make(map[string]string, len(own)+len(forcedEnv))
	maps.Copy(env, own)
	maps.Copy(env, forcedEnv)
	return env
}

// Supervised is one command as the supervising script gets it.
type Supervised struct {
	Deadline time.Duration // the far side's own, whole seconds; zero: none
	Grace    time.Duration // between TERM and KILL, whole seconds
	Stdin    int64         // so many bytes of standard input are the command's
	Nonce    string        // hex; marks the script's own lines
	Env      []string      // NAME=value, in order; later ones win
	Argv     []string
}

// Supervise prepares t. It fails where t cannot be put into words: an empty
// command, a NUL, a name of an environment variable that no shell takes, or
// words that are longer than one argument may be.
func Supervise(t evidence.Task) (Supervised, error) {
	if len(t.Argv) == 0 || t.Argv[0] == "" {
		return Supervised{}, fmt.Errorf("command is empty")
	}
	if strings.HasPrefix(t.Argv[0], "-") {
		return Supervised{}, fmt.Errorf("command %q begins with a dash", t.Argv[0])
	}
	env, err := taskEnv(t)
	if err != nil {
		return Supervised{}, err
	}
	for _, word := range append(env, t.Argv...) {
		if strings.ContainsRune(word, 0) {
			return Supervised{}, fmt.Errorf("word %q holds a NUL byte, which no argument can", word)
		}
	}
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return Supervised{}, fmt.Errorf("draw a nonce: %w", err)
	}
	s := Supervised{
		Grace: Grace,
		Stdin: int64(len(t.Stdin)),
		Nonce: hex.EncodeToString(nonce[:]),
		Argv:  t.Argv,
	}
	s.Env = append(env, nonceVariable+"="+s.Nonce)
	if t.Deadline > 0 {
		s.Deadline = (t.Deadline + superviseSlack + time.Second - 1).Truncate(time.Second)
	}
	if n := len(s.Exec(true)); n > maxExec {
		return Supervised{}, fmt.Errorf("command and environment take %d bytes of the %d that one argument may have", n, maxExec)
	}
	return s, nil
}

// taskEnv is the task's own environment, the forced one and the mark.
func taskEnv(t evidence.Task) ([]string, error) {
	all := environment(t.Env)
	names := make([]string, 0, len(all))
	for name := range all {
		if !envName(name) {
			return nil, fmt.Errorf("environment variable %q: want letters, digits and underscores, not beginning with a digit", name)
		}
		if strings.HasPrefix(name, scriptPrefix) {
			return nil, fmt.Errorf("environment variable %q: names that begin with %s are the supervising script's own", name, scriptPrefix)
		}
		names = append(names, name)
	}
	sort.Strings(names)
	var env []string
	for _, name := range names {
		env = append(env, name+"="+all[name])
	}
	if t.Mark != "" {
		env = append(env, "RACKPROOF_MARK="+t.Mark)
	}
	return env, nil
}

func envName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// Words are the program and its arguments that run s on this machine.
func (s Supervised) Words() []string {
	words := []string{
		"/bin/sh", "-c", superviseBoot, "rackproof", superviseScript, superviseWatch,
		seconds(s.Deadline), seconds(s.Grace), strconv.FormatInt(s.Stdin, 10), s.Nonce,
	}
	words = append(words, s.Env...)
	words = append(words, "--")
	return append(words, s.Argv...)
}

// sudo is what runs a supervised command as root: -n never asks.
var sudo = [...]string{"sudo", "-n", "--"}

// Sudo puts sudo in front of words.
func Sudo(words []string) []string { return append(sudo[:len(sudo):len(sudo)], words...) }

// Exec is s as one command line for a login shell, under sudo if become.
func (s Supervised) Exec(become bool) string {
	words := s.Words()
	if become {
		words = Sudo(words)
	}
	var line strings.Builder
	line.WriteString("exec")
	for _, word := range words {
		line.WriteByte(' ')
		line.WriteString(Quote(word))
	}
	return line.String()
}

// StartLine is what the script writes to both streams before the command's
// own output.
func (s Supervised) StartLine() string { return s.LinePrefix() + "start\n" }

// LinePrefix is how the script's own lines begin.
func (s Supervised) LinePrefix() string { return "rackproof " + s.Nonce + " " }

// EnvNames are the names of the variables that s sets, sorted, each once.
func (s Supervised) EnvNames() []string {
	seen := make(map[string]bool)
	var names []string
	for _, word := range s.Env {
		name, _, _ := strings.Cut(word, "=")
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// ParseSupervised reads a command line that Exec made, for a server that does
// the script's contract itself. Anything else is an error.
func ParseSupervised(line string) (Supervised, error) {
	words, err := Unquote(line)
	if err != nil {
		return Supervised{}, err
	}
	if len(words) == 0 || words[0] != "exec" {
		return Supervised{}, fmt.Errorf("command line is not a supervised one")
	}
	words = words[1:]
	if len(words) > len(sudo) && slices.Equal(words[:len(sudo)], sudo[:]) {
		words = words[len(sudo):]
	}
	head := Supervised{}.Words()[:6]
	if len(words) < 12 {
		return Supervised{}, fmt.Errorf("command line is not a supervised one")
	}
	for i, word := range head {
		if words[i] != word {
			return Supervised{}, fmt.Errorf("command line does not hold the script %s", SuperviseDigest)
		}
	}
	words = words[len(head):]
	var s Supervised
	var numbers [3]int64
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(words[i], 10, 64); err != nil || numbers[i] < 0 {
			return Supervised{}, fmt.Errorf("supervised command line: argument %d is %q: want a number", i+1, words[i])
		}
	}
	s.Deadline = time.Duration(numbers[0]) * time.Second
	s.Grace = time.Duration(numbers[1]) * time.Second
	s.Stdin = numbers[2]
	s.Nonce = words[3]
	for i, word := range words[4:] {
		if word == "--" {
			s.Env = words[4 : 4+i]
			s.Argv = words[4+i+1:]
			break
		}
		if name, _, ok := strings.Cut(word, "="); !ok || !envName(name) {
			return Supervised{}, fmt.Errorf("supervised command line: %q: want NAME=value", word)
		}
	}
	if len(s.Argv) == 0 {
		return Supervised{}, fmt.Errorf("supervised command line has no command")
	}
	return s, nil
}

// Quote makes word one word of a command line that sh, csh and fish read
// alike: in single quotes, but for the quote, the backslash and the
// exclamation mark, which stand outside behind a backslash. A word with a
// newline is right for sh and fish alone.
func Quote(word string) string {
	var quoted strings.Builder
	quoted.WriteByte('\'')
	for _, c := range []byte(word) {
		switch c {
		case '\'', '\\', '!':
			quoted.WriteString("'\\")
			quoted.WriteByte(c)
			quoted.WriteByte('\'')
		default:
			quoted.WriteByte(c)
		}
	}
	quoted.WriteByte('\'')
	return quoted.String()
}

// Unquote splits a command line into words as a POSIX shell does, as far as
// Quote goes: single quotes and backslashes. It expands nothing, and refuses
// what a shell would treat otherwise.
func Unquote(line string) ([]string, error) {
	var words []string
	var word []byte
	open := false // a word has begun
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ':
			if open {
				words = append(words, string(word))
				word, open = nil, false
			}
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, fmt.Errorf("command line: quote at byte %d is not closed", i)
			}
			word = append(word, line[i+1:i+1+end]...)
			i += end + 1
			open = true
		case '\\':
			if i++; i == len(line) {
				return nil, fmt.Errorf("command line ends in a backslash")
			}
			word = append(word, line[i])
			open = true
		default:
			if strings.IndexByte("\t\n\"$`;&|<>()*?[]#~{}", c) >= 0 {
				return nil, fmt.Errorf("command line: byte %d is %q outside of quotes", i, c)
			}
			word = append(word, c)
			open = true
		}
	}
	if open {
		words = append(words, string(word))
	}
	return words, nil
}
