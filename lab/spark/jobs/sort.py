"""Sorts lines of text with Python workers.

usage: sort.py INPUT OUTPUT PARTITIONS     folders in HDFS; OUTPUT must not exist

Every line goes through a Python worker and the shuffle: keyed, sorted by key and
written again.
"""
import sys

from pyspark.sql import SparkSession


def main(source, target, partitions):
    spark = SparkSession.builder.getOrCreate()
    lines = spark.sparkContext.textFile(source)
    # Reversed, so that text which is in order already is not.
    keyed = lines.map(lambda line: (line[::-1], line))
    keyed.sortByKey(numPartitions=partitions).values().saveAsTextFile(target)
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
