"""Forms: kinds of content that are not basic properties, and who reads them."""
import pytest

from gomq_py.content import forms
from gomq_py.errors import Malformed

# A kind that no door of ours has.
UNKNOWN = 250


@pytest.fixture
def form():
    made = forms.Form(UNKNOWN)
    forms.register(made)
    yield made
    forms.forget(UNKNOWN)


def test_registered_form_is_found_by_its_kind(form):
    assert forms.of(UNKNOWN) is form


def test_form_that_is_registered_again_counts(form):
    another = forms.Form(UNKNOWN)

    forms.register(another)

    assert forms.of(UNKNOWN) is another


def test_kind_that_nobody_has_registered_is_malformed():
    with pytest.raises(Malformed, match="content of kind 250, which is unknown here"):
        forms.of(UNKNOWN)


@pytest.mark.parametrize("kind", [0, forms.BASIC, 256])
def test_basic_and_what_no_record_holds_have_no_form(kind):
    with pytest.raises(ValueError, match=f"content of kind {kind}"):
        forms.register(forms.Form(kind))
