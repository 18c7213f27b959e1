"""Runs a job again and again, each time that a file orders it.

An order is a file in a folder: its name is its number, counted from 1, and its content
is the job's input and output, separated by a space. When the job is done, the file
NUMBER.done has a line of JSON: when the job began (seconds since 1970), and how many
seconds it took. The file 0.done says that the program is ready. A file with the name
"end" ends the program.
"""
import json
import os
import time


def serve(folder, run):
    def done(number, began):
        file = os.path.join(folder, f"{number}.done")
        with open(file + ".new", "w") as f:
            json.dump({"began": began, "seconds": time.time() - began}, f)
        os.rename(file + ".new", file)

    done(0, time.time())
    number = 1
    while not os.path.exists(os.path.join(folder, "end")):
        order = os.path.join(folder, str(number))
        if not os.path.exists(order):
            time.sleep(0.02)
            continue
        with open(order) as f:
            source, target = f.read().split()
        began = time.time()
        run(source, target)
        done(number, began)
        number += 1
