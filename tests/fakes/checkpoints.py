"""A checkpoint store on the fake disk."""


class FakeCheckpoints:
    def __init__(self, disk, alive):
        self.disk = disk
        self.alive = alive

    def save(self, step, write, boundary):
        assert self.alive(), "a dead process wrote a checkpoint"
        folder: dict = {}
        write(folder)
        self.disk.checkpoints[step] = (folder, boundary)

    def restore(self, read, *, newest):
        step = max(step for step in self.disk.checkpoints if step <= newest)
        folder, boundary = self.disk.checkpoints[step]
        read(folder)
        return boundary
