"""The jobs: each module says what its queries are. They are run by ``running``, configured by ``cli``."""
