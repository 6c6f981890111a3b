package reports

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rackproof/rackproof/evidence"
)

var screenshots = flag.String("screenshots", "", "keep the browser's pictures of the pages in this folder")

// A browser is Chromium, spoken to over --remote-debugging-pipe: JSON messages
// that end with NUL, on its descriptors 3 and 4. See
// https://chromedevtools.github.io/devtools-protocol/.
type browser struct {
	t       *testing.T
	in      *os.File
	pipe    *os.File
	out     *bufio.Reader
	id      int
	target  string
	session string
	events  []message
}

type message struct {
	ID     int             `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
	SessionID string `json:"sessionId,omitempty"`
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: install Debian's chromium, as .ci/run does", err)
	}
	profile, err := os.MkdirTemp("", "rackproof-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	theirs, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program,
		"--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir="+profile,
		"--no-first-run", "--hide-scrollbars", "--disable-extensions", "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, ours}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ours.Close()
	t.Cleanup(func() {
		in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have gone by itself
		_ = cmd.Wait()
		out.Close()
		_ = os.RemoveAll(profile)
	})
	return &browser{t: t, in: in, pipe: out, out: bufio.NewReaderSize(out, 1<<20)}
}

// call waits for the answer to one command, and keeps the events before it.
func (b *browser) call(method string, params map[string]any, into any) {
	b.t.Helper()
	b.id++
	text, err := json.Marshal(map[string]any{"id": b.id, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		text, err = json.Marshal(map[string]any{"id": b.id, "method": method, "params": params})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(text, 0)); err != nil {
		b.t.Fatal(err)
	}
	for {
		m := b.read()
		if m.ID != b.id {
			continue
		}
		if m.Error != nil {
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(m.Result, into); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

func (b *browser) read() message {
	b.t.Helper()
	if err := b.pipe.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		b.t.Fatal(err)
	}
	text, err := b.out.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("chromium: %v", err)
	}
	var m message
	if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
		b.t.Fatal(err)
	}
	if m.Method != "" {
		b.events = append(b.events, m)
	}
	return m
}

// open loads a page of the given width, with no network, and forgets what was
// heard of others.
func (b *browser) open(url string, width int) {
	b.t.Helper()
	b.session = ""
	if b.target != "" {
		b.call("Target.closeTarget", map[string]any{"targetId": b.target}, nil)
	}
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.target = target.TargetID
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.events = nil
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.call(domain+".enable", nil, nil)
	}
	b.call("Network.setBlockedURLs", map[string]any{"urls": []string{"http*", "ws*", "ftp*"}}, nil)
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Page.navigate", map[string]any{"url": url}, nil)
	for !b.heard("Page.loadEventFired") {
		b.read()
	}
}

func (b *browser) heard(method string) bool {
	for _, e := range b.events {
		if e.Method == method && e.SessionID == b.session {
			return true
		}
	}
	return false
}

// number evaluates an expression in the page.
func (b *browser) number(expression string) float64 {
	b.t.Helper()
	var got struct {
		Result struct {
			Value float64
		}
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, got.ExceptionDetails)
	}
	return got.Result.Value
}

// complaints are what the page logged, threw, or asked for beyond itself.
func (b *browser) complaints(url string) []string {
	var all []string
	for _, e := range b.events {
		switch e.Method {
		case "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded":
			all = append(all, e.Method+" "+string(e.Params))
		case "Network.requestWillBeSent":
			var sent struct{ Request struct{ URL string } }
			if err := json.Unmarshal(e.Params, &sent); err != nil || sent.Request.URL != url && sent.Request.URL != "data:," {
				all = append(all, fmt.Sprintf("request for %q %v", sent.Request.URL, err))
			}
		}
	}
	return all
}

// tallest is how much of a page Chromium can draw as one picture.
const tallest = 12000

// paper is the width of a sheet of A4, lying, within its margins, in pixels of
// 1/96 inch.
const paper = 1016

// keep writes a picture of the page where it was asked for, as it is
// seen by media and scheme.
func (b *browser) keep(name, media, scheme string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{"media": media, "features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	var picture struct{ Data string }
	clip := map[string]float64{
		"x": 0, "y": 0, "scale": 1, "width": b.number("innerWidth"), "height": min(b.number("document.documentElement.scrollHeight"), tallest),
	}
	b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "clip": clip}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func TestPageInABrowser(t *testing.T) {
	long := rackBundle(rackOptions{nodes: 32, slices: 12, faulty: true})
	endless := strings.Repeat("x", 3000)
	long.Plan.Title, long.Plan.Tests[0].Establishes[0].Sentence = endless, endless
	long.Plan.Owners[0].Contact = endless
	long.Verdict.Findings[9].Reason, long.Verdict.Findings[9].Text, long.Verdict.Findings[9].Source = endless, endless, endless
	long.Verdict.Coverage.Open[0].Problem.Detail = endless
	b := startBrowser(t)
	for name, bundle := range map[string]*evidence.Bundle{
		"faulty":    rackBundle(rackOptions{nodes: 32, slices: 72, faulty: true}),
		"clean":     rackBundle(rackOptions{nodes: 32, slices: 72}),
		"simulated": rackBundle(rackOptions{nodes: 32, slices: 72, simulated: true}),
		"thousand":  rackBundle(rackOptions{nodes: 1024, slices: 4, faulty: true}),
		"open":      open(), "hostile": hostilePage(), "long": long,
	} {
		file := filepath.Join(t.TempDir(), name+".html")
		if err := os.WriteFile(file, []byte(renderHTML(t, bundle)), 0o644); err != nil {
			t.Fatal(err)
		}
		url := "file://" + file
		for _, width := range []int{1280, 400} {
			start := time.Now()
			b.open(url, width)
			if over := b.number("document.documentElement.scrollWidth - document.documentElement.clientWidth"); over > 0 {
				t.Errorf("%s at %d pixels: %g too wide", name, width, over)
			}
			t.Logf("%s at %d pixels: %s", name, width, time.Since(start))
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("%s at %d pixels took %s", name, width, took)
			}
			if elements := b.number("document.querySelectorAll('script, img, iframe, object, embed, audio, video, link:not([rel=icon])').length"); elements != 0 {
				t.Errorf("%s: %g elements that a page of ours does not have", name, elements)
			}
			if folded := b.number("document.querySelectorAll('details').length"); folded == 0 {
				t.Errorf("%s: nothing is folded: this is not our page", name)
			}
			b.keep(fmt.Sprintf("%s-%d", name, width), "screen", "light")
			for _, complaint := range b.complaints(url) {
				t.Errorf("%s at %d pixels: %s", name, width, complaint)
			}
		}
		if *screenshots != "" {
			b.open(url, paper)
			b.keep(name+"-print", "print", "light")
			b.open(url, 1280)
			b.keep(name+"-dark", "screen", "dark")
		}
	}
}
