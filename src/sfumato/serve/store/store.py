"""The store of the cloud, in one object over one set of connections."""

from sfumato.serve.store.classifiers import Classifiers
from sfumato.serve.store.keys import Keys
from sfumato.serve.store.search import Search


class Store(Keys, Classifiers, Search):
    """The store of the cloud: its keys, its classifiers, and the search among them.

    State: connections to the database, which threads share; keys that were asked for within a second, and
    requests that were drawn for them, see `take`.

    Any number of threads and processes may use the same store, and each sees new examples at once.
    If the database went away, the next call connects again: nothing has to be reopened after StoreError.

    Methods raise StoreError, with the cure, if the database cannot be used; and NotFoundError for objects
    that the tenant does not have, whether they do not exist or belong to another tenant.
    """

    # Its parts are base classes, against the habit of this house: each is complete by itself, they share one
    # Database, and delegation would repeat each of their methods here.
