"""Functions in confined steps: the workers of an executor, each with its own limits."""

import os
import time

from nodectl.client import StepExecutor, StepTimeout, WorkerDied


def square(number: int) -> int:
    return number * number


def fall_over() -> None:
    os.abort()


if __name__ == "__main__":
    with StepExecutor(max_workers=2, time=10) as pool:
        print(*pool.map(square, range(8)))

        dead, well = pool.submit(fall_over), pool.submit(square, 12)
        try:
            dead.result()
        except WorkerDied as died:
            print("a worker died:", "signal 6" in str(died))
        print("the others go on:", well.result())

        try:
            pool.options(timeout=0.2, mem="256M").submit(time.sleep, 1000).result()
        except StepTimeout as late:
            print(late)
