// Ten thousand goroutines that pass numbers on, grow their stacks and make garbage.
// usage: goroutines [SECONDS]    repeats this until the time is up; once by default
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"
)

// A stack that grows with every call.
func deep(n int) int {
	var room [128]byte
	room[n%128] = byte(n)
	if n == 0 {
		return int(room[0])
	}
	return deep(n-1) + int(room[n%128])%2
}

// Returns the sum of the numbers of all goroutines.
func run() int {
	const many = 10000
	numbers := make(chan int)
	var group sync.WaitGroup
	for i := 0; i < many; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			kept := make([][]byte, 0, 16)
			for j := 0; j < 16; j++ {
				kept = append(kept, make([]byte, 1+(i*j)%8192))
			}
			numbers <- deep(i%200) + len(kept)
		}(i)
	}
	go func() { group.Wait(); close(numbers) }()
	sum := 0
	for n := range numbers {
		sum += n
	}
	runtime.GC()
	return sum
}

func main() {
	seconds := 0
	if len(os.Args) > 1 {
		seconds, _ = strconv.Atoi(os.Args[1])
	}
	until := time.Now().Add(time.Duration(seconds) * time.Second)
	sum := run()
	for time.Now().Before(until) {
		sum = run()
	}
	fmt.Println(sum > 0)
}
