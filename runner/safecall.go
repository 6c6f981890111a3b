package runner

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"
)

// callResult is how a call of foreign code ended.
type callResult struct {
	err       error
	panicked  string // the panic's value and stack; empty: no panic
	abandoned bool   // it outlived its context and the grace, and still runs
}

// safeCall runs f until it returns, or until ctx ended and grace passed. A
// panic inside f is caught; one inside a goroutine that f started cannot be.
// The idea is that of safeCall in the ChromiumOS test framework Tast.
func safeCall(ctx context.Context, grace time.Duration, f func(context.Context) error) callResult {
	// The buffer lets an abandoned call end whenever it likes.
	returned := make(chan callResult, 1)
	go func() {
		result := callResult{panicked: "the call ended its own goroutine"}
		defer func() {
			if p := recover(); p != nil {
				result.panicked = fmt.Sprintf("%v\n%s", p, debug.Stack())
			}
			returned <- result
		}()
		err := f(ctx)
		result = callResult{err: err}
	}()
	select {
	case result := <-returned:
		return result
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case result := <-returned:
		return result
	case <-timer.C:
		return callResult{abandoned: true}
	}
}
