import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import java.util.zip.*;

/** Eight threads that fill maps, compress, and use memory outside the heap; prints digests. */
public class Work {
  static String sha(byte[] data) throws Exception {
    return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data));
  }

  static byte[] deflate(byte[] data, int level) {
    Deflater deflater = new Deflater(level);
    deflater.setInput(data);
    deflater.finish();
    byte[] out = new byte[data.length + 1024];
    int length = deflater.deflate(out);
    deflater.end();
    return Arrays.copyOf(out, length);
  }

  static byte[] inflate(byte[] data, int length) throws DataFormatException {
    Inflater inflater = new Inflater();
    inflater.setInput(data);
    byte[] out = new byte[length];
    if (inflater.inflate(out) != length) throw new IllegalStateException("short");
    inflater.end();
    return out;
  }

  static String work(int seed) throws Exception {
    Random random = new Random(seed);
    TreeMap<String, List<Integer>> map = new TreeMap<>();
    for (int i = 0; i < 30_000; i++)
      map.computeIfAbsent("key" + random.nextInt(5_000), k -> new ArrayList<>()).add(i);
    byte[] text = map.entrySet().stream().map(e -> e.getKey() + "=" + e.getValue())
        .collect(Collectors.joining("\n")).getBytes(StandardCharsets.UTF_8);
    StringBuilder digests = new StringBuilder();
    for (int round = 0; round < 8; round++) {
      byte[] part = Arrays.copyOf(text, 10_000 + random.nextInt(text.length - 10_000));
      ByteBuffer outside = ByteBuffer.allocateDirect(part.length);
      outside.put(inflate(deflate(part, 1 + round % 9), part.length)).flip();
      byte[] back = new byte[part.length];
      outside.get(back);
      digests.append(sha(back));
    }
    return sha(digests.toString().getBytes(StandardCharsets.UTF_8));
  }

  public static void main(String[] arguments) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(8);
    List<Future<String>> results = new ArrayList<>();
    for (int i = 0; i < 16; i++) {
      int seed = i;
      results.add(pool.submit(() -> work(seed)));
    }
    for (Future<String> result : results) System.out.println(result.get());
    pool.shutdown();
    long sum = IntStream.range(0, 1_000_000).parallel().mapToObj(i -> "n" + i % 1000).collect(
        Collectors.groupingByConcurrent(s -> s, Collectors.counting())).values().stream().mapToLong(v -> v * v).sum();
    System.out.println(sum);
  }
}
