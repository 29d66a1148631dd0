"""Look: what was seen of a thing's counters when, and what came of it. ``rates`` keeps them."""


class Look:
    """``rates``: of the counters' ``values``, as of ``at`` (monotonic seconds). ``thing()`` is what it was
    looked at, or None once that has ended.

    Of a queue in a long list (``queue_lines``): ``counted`` are its counters in octets where its rates are
    all 0; ``head`` is JSON of what does not change while it has these ``arguments`` and stands under the
    policies ``in_force``, or empty where that is long.
    """

    __slots__ = ("thing", "at", "values", "rates", "counted", "head", "in_force", "arguments")

    def __init__(self, thing, at, values, rates):
        self.thing = thing
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
