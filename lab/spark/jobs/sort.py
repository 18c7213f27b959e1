"""Sorts lines of text with Python workers.

usage: sort.py INPUT OUTPUT PARTITIONS [GO END]     folders in HDFS; OUTPUT must not exist

A Python worker gives every line a key, the shuffle sorts the lines by key, and
they are written again. GO and END are as in wordcount.py.
"""
import json
import os
import sys
import time

from pyspark.sql import SparkSession


def say(step, began):
    print(json.dumps({"step": step, "began": began, "seconds": time.time() - began}), flush=True)


def await_file(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def main(source, target, partitions, go=None, end=None):
    spark = SparkSession.builder.getOrCreate()
    if go:
        began = time.time()
        spark.sparkContext.parallelize(range(12), 12).map(lambda x: (x, x)).sortByKey(numPartitions=partitions).collect()
        say("ready", began)
        await_file(go)
    began = time.time()
    lines = spark.sparkContext.textFile(source)
    # The key is the reversed line, so the order changes even if the text is sorted already.
    keyed = lines.map(lambda line: (line[::-1], line))
    keyed.sortByKey(numPartitions=partitions).values().saveAsTextFile(target)
    say("done", began)
    if end:
        await_file(end)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (4, 6):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
