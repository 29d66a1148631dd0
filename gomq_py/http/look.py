"""Look: what was seen of a thing's counters when, and what came of it. ``rates`` keeps them."""


class Look:
    """``rates``: of the counters' ``values``, as of ``at`` (monotonic seconds).

    Of a queue in a long list (``queue_lines``): ``counted`` are its counters in octets where its rates are
    all 0; ``head`` is JSON of what does not change while it has these ``arguments`` and stands under the
    policies ``in_force``, or empty where that is long.
    """

    __slots__ = ("at", "values", "rates", "counted", "head", "in_force", "arguments")

    def __init__(self, at, values, rates):
        self.at = at
        self.values = values
        self.rates = rates
        self.counted = self.head = self.in_force = self.arguments = None

    def take(self, at, values, rates):
        """Another look."""
        self.at = at
        self.counted = None
        for index, value in enumerate(values):
            self.values[index] = value
            self.rates[index] = rates[index]
