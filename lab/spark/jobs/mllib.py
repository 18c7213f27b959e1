"""Runs jobs of MLlib.

usage: mllib.py points OUTPUT ROWS PARTITIONS   writes points for kmeans, as Parquet
       mllib.py kmeans INPUT                    divides points into clusters
       mllib.py bayes INPUT                     learns to classify lines of text

INPUT and OUTPUT are folders in HDFS. Prints one line of JSON: the job, when it began
(seconds since 1970), how many seconds it took, and what it found.

MLlib's own Python package needs numpy. So the program calls MLlib in the driver's
JVM; executors need no Python either. Both jobs keep their vectors in memory, as the
jobs of HiBench do.
"""
import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

COLUMNS = [f"x{i}" for i in range(20)]
CLUSTERS = 8
ROUNDS = 12
CLASSES = 8
FEATURES = 1 << 16
SEED = 20161125


def points(spark, output, rows, partitions):
    # A coordinate has 8 bits: its cluster's centre and noise.
    rows = spark.range(0, int(rows), 1, int(partitions))
    columns = [(f.pmod(f.hash(f.pmod(f.col("id"), f.lit(CLUSTERS)), f.lit(i)), f.lit(224)) + (f.rand(SEED + i) * 32).cast("int")).cast("int").alias(c)
               for i, c in enumerate(COLUMNS)]
    rows.select(*columns).write.parquet(output)
    return {"rows": rows.count()}


def strings(spark, values):
    jvm = spark._jvm
    array = spark.sparkContext._gateway.new_array(jvm.java.lang.String, len(values))
    for i, value in enumerate(values):
        array[i] = value
    return array


def kmeans(spark, source):
    ml = spark._jvm.org.apache.spark.ml
    vectors = ml.feature.VectorAssembler().setInputCols(strings(spark, COLUMNS)).setOutputCol("features")
    rows = vectors.transform(spark.read.parquet(source)._jdf)
    model = ml.clustering.KMeans().setK(CLUSTERS).setMaxIter(ROUNDS).setTol(0.0).setSeed(SEED).fit(rows)
    clusters = len(list(model.summary().clusterSizes()))
    if clusters != CLUSTERS:
        sys.exit(f"kmeans found {clusters} clusters instead of {CLUSTERS}")
    return {"clusters": clusters, "cost": model.summary().trainingCost()}


def bayes(spark, source):
    ml = spark._jvm.org.apache.spark.ml
    lines = spark.read.text(source).where("value <> ''")
    lines = lines.withColumn("label", f.pmod(f.hash("value"), f.lit(CLASSES)).cast("double"))
    words = ml.feature.Tokenizer().setInputCol("value").setOutputCol("words")
    counts = ml.feature.HashingTF().setInputCol("words").setOutputCol("counts").setNumFeatures(FEATURES)
    rows = counts.transform(words.transform(lines._jdf)).select("label", strings(spark, ["counts"])).persist()
    weights = ml.feature.IDF().setInputCol("counts").setOutputCol("features").fit(rows)
    model = ml.classification.NaiveBayes().fit(weights.transform(rows))
    if model.numClasses() != CLASSES:
        sys.exit(f"bayes found {model.numClasses()} classes instead of {CLASSES}")
    return {"classes": model.numClasses(), "features": model.numFeatures()}


JOBS = {"points": (points, 3), "kmeans": (kmeans, 1), "bayes": (bayes, 1)}


def main(name, args):
    spark = SparkSession.builder.getOrCreate()
    began, begin = time.time(), time.monotonic()
    found = JOBS[name][0](spark, *args)
    print(json.dumps({"job": name, "began": began, "seconds": time.monotonic() - begin, **found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS or len(sys.argv) != 2 + JOBS[sys.argv[1]][1]:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
