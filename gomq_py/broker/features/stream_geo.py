"""Geographic conditions for stream filters, on a message's headers ``x-geo-lat`` and ``x-geo-lon`` in
degrees.

    geo-within-radius   {lat, lon, radius_km}
    geo-bbox            {min_lat, max_lat, min_lon, max_lon}; with min_lon above max_lon it lies across the
                        180th meridian
    geo-polygon         {points: [[lat, lon], ...]}, three or more, in order; edges are straight in degrees

The earth counts as a sphere. A condition is a function of a message's headers; it is false for a message
without a position. The functions that make conditions raise ValueError for bad values.
"""
from math import asin, cos, isfinite, radians, sin, sqrt

from gomq_py.content.fields import is_decimal

LATITUDE, LONGITUDE = "x-geo-lat", "x-geo-lon"
EARTH_RADIUS_KM = 6371


def within_radius(value):
    """Return the condition that a message's position is within a radius (great-circle distance)."""
    lat, lon = _position(
        _named(value, "geo-within-radius", "lat"), _named(value, "geo-within-radius", "lon"),
        "geo-within-radius",
    )
    radius_km = _named(value, "geo-within-radius", "radius_km")
    if radius_km < 0:
        raise ValueError("geo-within-radius: radius_km must not be negative")
    return lambda headers: (
        (there := position_of(headers)) is not None and distance_km(lat, lon, *there) <= radius_km
    )


def bbox(value):
    """Return the condition that a message's position is between two latitudes and longitudes, or on them."""
    min_lat, max_lat, min_lon, max_lon = (
        _named(value, "geo-bbox", key) for key in ("min_lat", "max_lat", "min_lon", "max_lon")
    )
    _position(min_lat, min_lon, "geo-bbox")
    _position(max_lat, max_lon, "geo-bbox")
    if min_lat > max_lat:
        raise ValueError("geo-bbox: min_lat is above max_lat")

    def condition(headers):
        there = position_of(headers)
        if there is None or not min_lat <= there[0] <= max_lat:
            return False
        return (
            min_lon <= there[1] <= max_lon if min_lon <= max_lon
            else there[1] >= min_lon or there[1] <= max_lon
        )
    return condition


def polygon(value):
    """Return the condition that a message's position is inside a polygon (see is_inside)."""
    points = value.get("points") if isinstance(value, dict) else None
    if not isinstance(points, list) or len(points) < 3:
        raise ValueError("geo-polygon: points must be an array of three or more")
    corners = []
    for point in points:
        if not isinstance(point, list) or len(point) != 2:
            raise ValueError("geo-polygon: a point must be an array of a latitude and a longitude")
        corners.append(
            _position(
                _number(point[0], "geo-polygon", "lat"), _number(point[1], "geo-polygon", "lon"),
                "geo-polygon",
            )
        )
    return lambda headers: (there := position_of(headers)) is not None and is_inside(there, corners)


GEO_CONDITIONS = {"geo-within-radius": within_radius, "geo-bbox": bbox, "geo-polygon": polygon}


def position_of(headers):
    """Return (latitude, longitude) in degrees from a message's headers; None without a valid position."""
    try:
        lat, lon = float(headers[LATITUDE]), float(headers[LONGITUDE])
    except (KeyError, TypeError, ValueError):
        return None
    return (lat, lon) if -90 <= lat <= 90 and -180 <= lon <= 180 else None


def distance_km(lat, lon, other_lat, other_lon):
    """Return the great-circle distance of two positions in km."""
    half_lat, half_lon = radians(other_lat - lat) / 2, radians(other_lon - lon) / 2
    a = sin(half_lat) ** 2 + cos(radians(lat)) * cos(radians(other_lat)) * sin(half_lon) ** 2
    return 2 * EARTH_RADIUS_KM * asin(sqrt(min(1.0, a)))


def is_inside(there, corners):
    """True if the position ``there`` is in a polygon: a ray to the east crosses an odd number of edges."""
    lat, lon = there
    inside = False
    lat_before, lon_before = corners[-1]
    for lat_here, lon_here in corners:
        if (
            (lat_here > lat) != (lat_before > lat)
            and lon < (lon_before - lon_here) * (lat - lat_here) / (lat_before - lat_here) + lon_here
        ):
            inside = not inside
        lat_before, lon_before = lat_here, lon_here
    return inside


def _named(value, condition, key):
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f"{condition}: {key} is missing")
    return _number(value[key], condition, key)


def _number(value, condition, key):
    is_number = isinstance(value, (int, float)) or is_decimal(value)
    if isinstance(value, bool) or not is_number or not isfinite(value):
        raise ValueError(f"{condition}: {key} must be a number")
    return float(value)


def _position(lat, lon, condition):
    if not -90 <= lat <= 90 or not -180 <= lon <= 180:
        raise ValueError(f"{condition}: {lat}, {lon} is nowhere")
    return lat, lon
