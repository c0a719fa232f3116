"""Blocks are read ahead: the next one while this one is at work, and no longer than the caller listens."""

from __future__ import annotations

import threading

import pytest

from ksparse.design.blocks import read_ahead


def test_the_next_block_is_read_while_this_one_is_at_work():
    read = [threading.Event() for _ in range(6)]

    def blocks():
        for number, event in enumerate(read):
            event.set()
            yield number

    for _, number in read_ahead(blocks()):
        assert read[min(number + 1, 5)].wait(timeout=100), number


def test_a_reader_stops_with_its_caller():
    before, closed = threading.active_count(), []

    def endless():
        try:
            while True:
                yield 0
        finally:
            closed.append(True)

    for _ in read_ahead(endless()):
        break
    assert closed == [True]
    assert threading.active_count() == before

    def broken():
        yield 1
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(read_ahead(broken()))
