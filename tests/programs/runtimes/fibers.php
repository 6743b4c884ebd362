<?php
// Fibers that keep values on their stacks, and are resumed in random order. Ends with 1 if a value is wrong.
// usage: fibers.php SECONDS [FIBERS]
$many = (int) ($argv[2] ?? 5000);
$fibers = [];
for ($n = 0; $n < $many; $n++) {
    $fibers[$n] = new Fiber(function (int $number): void {
        $kept = array_fill(0, 8, $number);
        while (true) {
            Fiber::suspend(array_sum($kept));
        }
    });
    $fibers[$n]->start($n);
}
mt_srand(7);
$finish = microtime(true) + (float) $argv[1];
while (microtime(true) < $finish) {
    $n = mt_rand(0, $many - 1);
    if ($fibers[$n]->resume() !== 8 * $n) {
        fwrite(STDERR, "fiber $n\n");
        exit(1);
    }
}
echo "every fiber was right\n";
