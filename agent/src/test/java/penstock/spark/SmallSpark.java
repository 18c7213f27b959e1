package penstock.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaPairRDD;
import org.apache.spark.api.java.JavaSparkContext;
import scala.Tuple2;

/**
 * A main class that runs Spark's own shuffles with little data and many spills: a sort (records in memory,
 * ExternalSorter), a repartition (bytes, UnsafeShuffleWriter), a grouping (ExternalAppendOnlyMap) and a data set that
 * is cached on disk.
 */
public final class SmallSpark {
    private static final int RECORDS = 60_000;

    private SmallSpark() { }

    /** Takes the master, a directory and Spark's settings as key=value; prints a digest of each result. */
    public static void main(String[] args) throws Exception {
        SparkConf conf = new SparkConf().setMaster(args[0]).setAppName("small").set("spark.local.dir", args[1])
                .set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
                .set("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
                .set("spark.shuffle.spill.numElementsForceSpillThreshold", "4000")
                .set("spark.shuffle.spill.batchSize", "500")
                .set("spark.shuffle.sort.bypassMergeThreshold", "2")
                .set("spark.executorEnv.SPARK_LOCAL_IP", "127.0.0.1");
        for (int i = 2; i < args.length; i++) {
            int equals = args[i].indexOf('=');
            conf.set(args[i].substring(0, equals), args[i].substring(equals + 1));
        }
        try (JavaSparkContext spark = new JavaSparkContext(conf)) {
            List<Integer> seeds = List.of(1, 2, 3, 4);
            JavaPairRDD<Long, String> data = spark.parallelize(seeds, 4).flatMapToPair(seed -> {
                Random random = new Random(seed);
                List<Tuple2<Long, String>> some = new ArrayList<>();
                for (int i = 0; i < RECORDS / 4; i++) {
                    some.add(new Tuple2<>(random.nextLong() % 5000, Long.toHexString(random.nextLong())));
                }
                return some.iterator();
            });
            print("sorted", data.sortByKey(true, 4).map(t -> (long) t._1).collect());
            print("spread", data.repartition(5).map(t -> t._1 * 31 + t._2.hashCode()).collect().stream().sorted()
                    .toList());
            print("grouped", data.groupByKey(3).map(t -> {
                long sum = 0;
                for (String s : t._2) {
                    sum += s.hashCode();
                }
                return t._1 * 31 + sum;
            }).collect().stream().sorted().toList());
            JavaPairRDD<Long, String> kept = data.persist(org.apache.spark.api.java.StorageLevels.DISK_ONLY);
            kept.count();
            print("kept", kept.map(t -> (long) t._2.hashCode()).collect());
            System.out.println("application " + spark.sc().applicationId());
        }
    }

    private static void print(String name, List<Long> values) {
        System.out.println(name + " " + values.size() + " " + values.hashCode());
    }
}
