import java.util.ArrayList;
import java.util.List;

/**
 * Makes garbage in four threads, so that a collector moves and unmaps memory. usage: Garbage [SECONDS], three by default
 */
class Garbage {
    public static void main(String[] args) throws Exception {
        final long seconds = args.length > 0 ? Long.parseLong(args[0]) : 3;
        final long until = System.nanoTime() + seconds * 1_000_000_000L;
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread thread = new Thread(() -> {
                List<byte[]> kept = new ArrayList<>();
                int step = 0;
                while (System.nanoTime() < until) {
                    kept.add(new byte[Math.floorMod(step * 7919, 65_536) + 1]);
                    if (kept.size() > 500) {
                        kept.subList(0, 400).clear();
                    }
                    step++;
                }
                System.out.println(step > 0 ? "made garbage" : "had no time");
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.gc();
    }
}
