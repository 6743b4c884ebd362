// Keeps a random third of large and small arrays for some rounds, so that the collector gives pages back and takes others.
import java.util.*;
class Heap {
    public static void main(String[] words) throws Exception {
        Random chance = new Random(4);
        byte[][] all = new byte[400][];
        for (int round = 0; round < 5; round++) {
            for (int k = 0; k < all.length; k++)
                if (chance.nextInt(3) == 0) all[k] = chance.nextInt(3) == 0 ? null : new byte[chance.nextInt(8) == 0 ? chance.nextInt(30 << 20) : 1 + chance.nextInt(200 << 10)];
            System.gc();
        }
        System.out.println("ready");
        Thread.sleep(600000);
    }
}
