// Threads that sleep.   usage: Threads COUNT
class Threads {
    public static void main(String[] words) throws Exception {
        for (int k = 0; k < Integer.parseInt(words[0]); k++) {
            Thread thread = new Thread(() -> { try { Thread.sleep(600000); } catch (InterruptedException e) { } });
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("ready");
        Thread.sleep(600000);
    }
}
