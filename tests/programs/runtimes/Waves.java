import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;

/** Four threads whose heap grows and shrinks in waves, and that check their arrays. usage: Waves SECONDS */
class Waves {
    private static volatile boolean wrong;

    public static void main(String[] args) throws Exception {
        long finish = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000_000L;
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 4; number++) {
            Random dice = new Random(number);
            Thread thread = new Thread(() -> waves(dice, finish));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.exit(wrong ? 1 : 0);
    }

    private static void waves(Random dice, long finish) {
        List<byte[]> kept = new ArrayList<>();
        for (int wave = 0; System.nanoTime() < finish; wave++) {
            int top = 100 + dice.nextInt(900);
            while (kept.size() < top) {
                byte[] array = new byte[1 + dice.nextInt(60_000)];
                array[array.length - 1] = (byte) array.length;
                kept.add(array);
            }
            wrong |= kept.stream().anyMatch(array -> array[array.length - 1] != (byte) array.length);
            Collections.shuffle(kept, dice);
            kept.subList(top / 10, kept.size()).clear();
            if (wave % 8 == 0) {
                System.gc();
            }
        }
    }
}
