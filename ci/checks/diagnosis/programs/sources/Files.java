// Maps many small files; with a second word, deletes them afterwards.   usage: Files COUNT [delete]
import java.io.*;
import java.nio.*;
import java.nio.channels.*;
import java.util.*;
class Files {
    public static void main(String[] words) throws Exception {
        List<Buffer> all = new ArrayList<>();
        for (int k = 0; k < Integer.parseInt(words[0]); k++) {
            File file = new File("segment" + k + ".idx");
            try (RandomAccessFile open = new RandomAccessFile(file, "rw")) {
                open.setLength(8192 * (1 + k % 5));
                all.add(open.getChannel().map(FileChannel.MapMode.READ_ONLY, 0, open.length()));
            }
            if (words.length > 1) file.delete();
        }
        System.out.println("ready");
        Thread.sleep(600000);
    }
}
