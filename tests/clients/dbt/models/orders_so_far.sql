{{ config(materialized='incremental', unique_key=['id'], distributed_by=['id'], incremental_strategy='insert_overwrite') }}
select id, customer, amount from {{ ref('orders') }}
{% if is_incremental() %} where id > (select max(id) - 1 from {{ this }}) {% endif %}
