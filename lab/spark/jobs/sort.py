"""Sorts lines of text with Python workers.

usage: sort.py INPUT OUTPUT PARTITIONS     folders in HDFS; OUTPUT must not exist

A Python worker gives every line a key, the shuffle sorts the lines by key, and
they are written again.
"""
import sys

from pyspark.sql import SparkSession


def main(source, target, partitions):
    spark = SparkSession.builder.getOrCreate()
    lines = spark.sparkContext.textFile(source)
    # The key is the reversed line, so the order changes even if the text is sorted already.
    keyed = lines.map(lambda line: (line[::-1], line))
    keyed.sortByKey(numPartitions=partitions).values().saveAsTextFile(target)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
