"""Counts the words of a text with Python workers.

usage: wordcount.py INPUT OUTPUT PARTITIONS     folders in HDFS; OUTPUT must not exist
       wordcount.py ORDERS PARTITIONS           a folder on this machine; see orders.py

A line of OUTPUT is a word, a tab and the word's number.
"""
import operator
import sys

import orders
from pyspark.sql import SparkSession


def main(partitions, *where):
    context = SparkSession.builder.getOrCreate().sparkContext

    def count(source, target):
        words = context.textFile(source).flatMap(str.split)
        counts = words.map(lambda word: (word, 1)).reduceByKey(operator.add, partitions)
        counts.map(lambda pair: f"{pair[0]}\t{pair[1]}").saveAsTextFile(target)

    if len(where) == 1:
        orders.serve(where[0], count)
    else:
        count(*where)
    context.stop()


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(int(sys.argv[-1]), *sys.argv[1:-1])
