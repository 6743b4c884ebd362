// Ten thousand goroutines that pass numbers on, grow their stacks and make garbage.
package main

import (
	"fmt"
	"runtime"
	"sync"
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

func main() {
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
	fmt.Println(sum > 0)
}
