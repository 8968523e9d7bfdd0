from hypothesis import given
from hypothesis import strategies as st

from rockstrata.message.key_hashes import index_hashes
from rockstrata.message.tags import index_hash

_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(prefix=_TEXTS, keys=st.lists(_TEXTS, max_size=40))
def test_many_keys_hash_as_one_by_one(prefix, keys):
    assert index_hashes(prefix, keys).tolist() == [index_hash(prefix + key) for key in keys]
