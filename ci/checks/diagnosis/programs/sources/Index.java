// A Lucene index with many segments, which are not merged, opened by a directory that maps files.   usage: Index SEGMENTS
import java.nio.file.*;
import java.util.*;
import org.apache.lucene.analysis.core.*;
import org.apache.lucene.document.*;
import org.apache.lucene.index.*;
import org.apache.lucene.store.*;
class Index {
    public static void main(String[] words) throws Exception {
        // Nothing is kept: a sync of each file would only take time.
        Directory folder = new MMapDirectory(Path.of("index")) {
            @Override public void sync(Collection<String> names) { }
            @Override public void syncMetaData() { }
        };
        IndexWriterConfig settings = new IndexWriterConfig(new WhitespaceAnalyzer());
        settings.setMergePolicy(NoMergePolicy.INSTANCE);
        settings.setUseCompoundFile(false);
        try (IndexWriter writer = new IndexWriter(folder, settings)) {
            for (int k = 0; k < Integer.parseInt(words[0]); k++) {
                Document document = new Document();
                document.add(new TextField("text", "word" + k + " and some others", Field.Store.YES));
                document.add(new NumericDocValuesField("number", k));
                writer.addDocument(document);
                writer.flush();
            }
        }
        DirectoryReader reader = DirectoryReader.open(folder);
        System.out.println("segments " + reader.leaves().size() + "\nready");
        Thread.sleep(600000);
    }
}
