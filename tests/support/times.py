"""Times in the form of a date that the API server accepts although no calendar has them, or no Python."""

IMPOSSIBLE = [
    "2027-06-31T00:00:00Z",
    "2027-02-30T00:00:00Z",
    "2027-01-01T00:00:60Z",
    "2027-01-01T24:00:00Z",
    "0000-01-01T00:00:00Z",
    "2027-01-01T00:00:00+24:00",
    "9999-12-31T23:00:00-14:00",
    "0001-01-01T00:00:00+14:00",
]
