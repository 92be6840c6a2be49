"""Asynchronous `reshard` calls."""

import torch

from .torch_symmetric import finished, shared


class Work:
    """A `reshard` call in progress. Before `wait`, do not write the tensors passed to the call or
    read its result. `steps`: a generator that performs the call; `given`: the tensors passed;
    `then`: a function of the result that returns the result of `wait`."""

    def __init__(self, steps, home, given, group, then):
        self._steps, self._then, self._shared = steps, then, shared(group)
        self._result = self._error = self._event = None
        if home.type == "cuda":
            side = self._side(home)
            side.wait_stream(torch.cuda.current_stream(home))
            with torch.cuda.stream(side):
                self._finish()
                self._event = side.record_event()
            for tensor in given:  # the caller may free them before the stream is done
                tensor.record_stream(side)
        else:
            next(steps)
        self._shared.under_way = self

    def wait(self):
        """Wait for the call and return its result: on a GPU the current stream waits, on a CPU this
        thread. Raises the error of the call."""
        if self._shared.under_way is self:
            self._shared.under_way = None
        if self._event is None:
            self._finish()
        else:
            current = torch.cuda.current_stream(self._event.device)
            current.wait_event(self._event)
            for tensor in self._result or ():  # allocated on the side stream
                if tensor is not None:
                    tensor.record_stream(current)
        if self._error is not None:
            raise self._error
        return self._then(self._result)

    def _finish(self):
        """Run the rest of the call unless it has already run, and keep its result or its
        RuntimeError."""
        steps, self._steps = self._steps, None
        if steps is None:
            return
        try:
            self._result = finished(steps)
        except RuntimeError as error:
            self._error = error

    def _side(self, home):
        """Return the stream for a group's asynchronous calls on a device. All of them use one,
        because torch reuses memory freed on a stream only on that stream."""
        sides = self._shared.sides
        if home not in sides:
            sides[home] = torch.cuda.Stream(home)
        return sides[home]
