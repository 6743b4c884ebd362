// Loads copies of a native library, as class loaders that each unpack theirs.   usage: Copies COUNT LIBRARY
import java.nio.file.*;
class Copies {
    public static void main(String[] words) throws Exception {
        for (int k = 0; k < Integer.parseInt(words[0]); k++) {
            Path copy = java.nio.file.Files.createTempFile(Path.of("."), "libnative", ".so");
            java.nio.file.Files.copy(Path.of(words[1]), copy, StandardCopyOption.REPLACE_EXISTING);
            System.load(copy.toAbsolutePath().toString());
        }
        System.out.println("ready");
        Thread.sleep(600000);
    }
}
